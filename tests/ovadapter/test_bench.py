"""The bench runs to its end and prints what it promises, with and without a compiler."""

from __future__ import annotations

import json
from typing import Any

import pytest

BENCH = "import sys; from ovadapter.__main__ import main; sys.exit(main(['bench', '--rounds', '1', *sys.argv[1:]]))"


@pytest.mark.slow
@pytest.mark.parametrize("compiler", [None, "/nowhere/cc"], ids=["a compiler", "no compiler"])
def test_json(python: Any, compiler: str | None) -> None:
    finished = python(BENCH, "--json", **({} if compiler is None else {"CC": compiler, "PATH": "/nowhere"}))
    assert finished.returncode == 0, finished.stderr
    findings = json.loads(finished.stdout)
    assert findings["driver"] == "software"
    if compiler is not None:
        assert findings["call"]["C"] is None
    elif findings["call"]["C"] is None:
        pytest.skip(f"no C variants here: {finished.stderr}")
    for title in ("call", "allocation of 4 KiB and free"):
        assert findings[title]["l0py.lib"]["ns"] > 0
    assert [int(size) for size in findings["tensors"]] == [1 << power for power in range(12, 27, 2)]
    assert all(figures["numpy"]["ns"] > 0 < figures["remote"]["ns"] for figures in findings["tensors"].values())


@pytest.mark.slow
def test_text(python: Any) -> None:
    finished = python(BENCH)
    assert finished.returncode == 0, finished.stderr
    assert "64 MiB" in finished.stdout
