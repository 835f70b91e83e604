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
    assert (findings["call"]["C"] is None) is (compiler is not None)
    for title in ("call", "allocation of 4 KiB and free"):
        assert findings[title]["l0py.lib"]["ns"] > 0
    assert [int(size) for size in findings["tensors"]] == [1 << power for power in range(12, 27, 2)]
    largest = findings["tensors"][str(1 << 26)]
    assert largest["numpy"]["ns"] > 2 * largest["remote"]["ns"], "64 MiB cost as much without a copy as with one"


@pytest.mark.slow
def test_text(python: Any) -> None:
    finished = python(BENCH)
    assert finished.returncode == 0, finished.stderr
    assert "64 MiB" in finished.stdout
