"""The tests that need real dma-bufs and fences, on a kernel that has them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from virtual_machine import ROOT, Unavailable, run


@pytest.mark.slow
def test_all_of_them_run_in_a_virtual_machine() -> None:
    if Path("/dev/udmabuf").exists() and Path("/dev/dma_heap").exists() and Path("/dev/dri").exists():
        pytest.skip("this machine has them itself")
    tests = Path(__file__).resolve()
    command = (
        f"cd {ROOT} && L0PY_SOFTDRIVER=1 PYTHONDONTWRITEBYTECODE=1 {sys.executable} -m pytest -p no:cacheprovider "
        f"--color=no -k real --ignore {tests} {tests.parent}"
    )
    try:
        status, output = run(command, timeout=280)
    except Unavailable as error:
        pytest.skip(str(error))
    assert status == 0, output
    assert " passed" in output
    assert "skipped" not in output, output
