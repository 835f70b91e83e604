from __future__ import annotations

import builtins
import sys
from typing import Any

import pytest

from ovadapter.tables import table

ROWS = [("TENSOR", "RULE"), ("detection/fetch_name_0", "a remote tensor imported by fd is used in place"), ("x", "")]


def test_columns_are_aligned() -> None:
    lines = table([("A", "LONG"), ("four", "b")])
    assert lines == ["A     LONG", "four  b"]


def test_a_terminal_folds_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "30")
    lines = table(ROWS)
    assert max(map(len, lines)) <= 30
    letters = sorted("".join(lines).replace(" ", ""))
    assert letters == sorted("".join(map("".join, ROWS)).replace(" ", ""))


def test_a_terminal_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def no_rich(name: str, *rest: Any) -> Any:
        if name.startswith("rich"):
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(builtins, "__import__", no_rich)
    assert table([("A", "LONG"), ("four", "b")]) == ["A     LONG", "four  b"]
