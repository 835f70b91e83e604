from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from ovadapter import hardware

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def undecided(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("L0PY_SOFTDRIVER", "")
    monkeypatch.delenv("L0PY_SOFTDRIVER")
    return []


def test_the_user_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("L0PY_SOFTDRIVER", "0")
    hardware.choose_driver(pytest.fail)
    assert os.environ["L0PY_SOFTDRIVER"] == "0"


def test_without_an_npu_the_software_driver(monkeypatch: pytest.MonkeyPatch, undecided: list[str]) -> None:
    monkeypatch.setattr(hardware, "_has_npu", lambda: False)
    hardware.choose_driver(undecided.append)
    assert os.environ["L0PY_SOFTDRIVER"] == "1"
    assert undecided == ["no Intel NPU here; the software driver stands in for it"]


@pytest.mark.parametrize("works", [True, False])
def test_an_npu_is_tried_first(
    monkeypatch: pytest.MonkeyPatch, undecided: list[str], tmp_path: Path, works: bool
) -> None:
    interpreter = tmp_path / "python"
    interpreter.write_text(f"#!/bin/sh\necho 'no such driver' >&2\nexit {0 if works else 1}\n")
    interpreter.chmod(0o755)
    monkeypatch.setattr(hardware, "_has_npu", lambda: True)
    monkeypatch.setattr(sys, "executable", str(interpreter))
    hardware.choose_driver(undecided.append)
    assert os.environ.get("L0PY_SOFTDRIVER") == (None if works else "1")
    expected = "the NPU cannot be used: no such driver; the software driver stands in for it"
    assert undecided == ([] if works else [expected])
