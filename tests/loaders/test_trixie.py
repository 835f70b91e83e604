"""Debian 13's loader 1.20, in a tree of its own: l0py's tests; the demo with layers on and beside a second driver;
the software NPU and GPU together.
"""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from probe import L0PY_TESTS
from test_npu_and_gpu import OUTCOME

if TYPE_CHECKING:
    from pathlib import Path

    from trees import Tree

pytestmark = [pytest.mark.loaders, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(1800)]

VALIDATION = {
    "ZE_ENABLE_VALIDATION_LAYER": "1",
    "ZE_ENABLE_PARAMETER_VALIDATION": "1",
    "ZE_ENABLE_HANDLE_LIFETIME": "1",
}
#: Its log of every call, on stderr.
LOG = {
    "ZEL_ENABLE_LOADER_LOGGING": "1",
    "ZEL_LOADER_LOG_CONSOLE": "1",
    "ZEL_LOADER_LOGGING_LEVEL": "trace",
}
#: How the layer's log tells of calls that did not succeed, and those that are to be.
COMPLAINT = re.compile(r"Error \((\w+)\) in (\w+)")
EXPECTED = {
    # OpenVINO leaves its description's pNext uninitialized, which the layer notices; it then takes zeInit.
    ("ZE_RESULT_ERROR_INVALID_ARGUMENT", "zeInitDrivers"),
    # This is how OpenVINO asks whether memory is Level Zero's.
    ("ZE_RESULT_ERROR_NOT_AVAILABLE", "zeMemGetAllocProperties"),
}
BAD_CALL = """
import l0py, l0py.lib as lib
context = lib.ffi.new("ze_context_handle_t*")
assert lib.zeContextCreate(l0py.drivers()[0].handle, lib.ffi.NULL, context) == lib.ZE_RESULT_ERROR_INVALID_NULL_POINTER
"""
INTERCEPT = {"ZE_ENABLE_LOADER_INTERCEPT": "1"}
SOFTWARE_DRIVER = "import l0py.softdriver as s; print(s.path())"


def demo(tree: Tree, **environment: str) -> tuple[dict[str, Any], str]:
    """What the demo's one JSON object says, and its stderr."""
    done = tree.run("python", "-m", "ovadapter", "demo", "--json", **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def check(outcome: dict[str, Any]) -> None:
    """The real loader, the software driver, no copy, and the CPU plugin's results."""
    assert outcome["loader"]["source"] in ("system", "process")
    assert outcome["loader"]["version"].startswith("1.20.")
    assert (outcome["device"], outcome["driver"]) == ("NPU", "software")
    assert all(verdict is True for verdict in outcome["zero_copy"].values())
    assert outcome["max_abs_diff"] == 0


@pytest.fixture(scope="module")
def both_drivers(trixie: Tree, second_driver: Path) -> tuple[str, str]:
    """The second driver's path and the software driver's, in the tree."""
    shutil.copy(second_driver, trixie.path / "opt" / "libsecond.so")
    return "/opt/libsecond.so", trixie.run("python", "-c", SOFTWARE_DRIVER).stdout.strip()


@pytest.mark.parametrize("file", L0PY_TESTS)
@pytest.mark.parametrize("environment", [{}, VALIDATION], ids=["plain", "validation"])
def test_l0py_passes_its_tests(trixie: Tree, environment: dict[str, str], file: str) -> None:
    command = ["pytest", "-q", "-p", "no:cacheprovider", "-c", "/src/pyproject.toml", f"/src/tests/l0py/{file}"]
    done = trixie.run(*command, timeout=250, L0PY_SOFTDRIVER="1", **environment)
    assert done.returncode == 0, done.stdout + done.stderr


def test_demo(trixie: Tree) -> None:
    outcome, _ = demo(trixie, L0PY_SOFTDRIVER="1")
    check(outcome)


def test_validation_notices_bad_calls(trixie: Tree) -> None:
    """So that its silence means something."""
    done = trixie.run("python", "-c", BAD_CALL, L0PY_SOFTDRIVER="1", **VALIDATION, **LOG)
    assert done.returncode == 0, done.stderr
    assert ("ZE_RESULT_ERROR_INVALID_NULL_POINTER", "zeContextCreate") in COMPLAINT.findall(done.stderr)


def test_demo_with_validation(trixie: Tree) -> None:
    """The layer checks parameters and the life of handles, and has nothing to complain of."""
    outcome, said = demo(trixie, L0PY_SOFTDRIVER="1", **VALIDATION, **LOG)
    check(outcome)
    assert "Validation Layer Enabled" in said
    assert set(COMPLAINT.findall(said)) <= EXPECTED


def test_demo_leaks_nothing(trixie: Tree) -> None:
    """The loader's own count of what is created and destroyed, in both processes of the demo."""
    outcome, said = demo(trixie, L0PY_SOFTDRIVER="1", ZEL_ENABLE_BASIC_LEAK_CHECKER="1", **VALIDATION, **LOG)
    check(outcome)
    assert re.search(r"zeMemAllocHost = [1-9]", said)
    assert "LEAK" not in said


def test_demo_with_interception(trixie: Tree) -> None:
    """Every handle is the loader's own then, also those that go around it through extensions."""
    outcome, _ = demo(trixie, L0PY_SOFTDRIVER="1", **INTERCEPT)
    check(outcome)


@pytest.mark.parametrize("order", [1, -1], ids=["second", "first"])
@pytest.mark.parametrize("layers", [{}, VALIDATION | LOG], ids=["plain", "validation"])
def test_demo_beside_a_second_driver(
    trixie: Tree, both_drivers: tuple[str, str], order: int, layers: dict[str, str]
) -> None:
    """Listed after the other one, and before it."""
    outcome, said = demo(trixie, ZE_ENABLE_ALT_DRIVERS=",".join(both_drivers[::order]), **layers)
    check(outcome)
    assert set(COMPLAINT.findall(said)) <= EXPECTED


@pytest.mark.parametrize("order", ["npu,gpu", "gpu,npu"])
@pytest.mark.parametrize("layers", [{}, INTERCEPT, VALIDATION], ids=["plain", "intercept", "validation"])
def test_npu_and_gpu(trixie: Tree, order: str, layers: dict[str, str]) -> None:
    """Both software drivers: this loader wraps their handles, also those that go around it. OpenVINO infers."""
    done = trixie.run("python", "/src/tests/loaders/gpu_beside_npu.py", L0PY_SOFTDRIVER=order, **layers)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told.pop("version").startswith("1.20.")
    assert told.pop("kinds") == ["gpu", "npu"]  # this loader sorts them
    assert told.pop("inferred") == [0, 2, 4, 6]
    assert told.items() >= OUTCOME.items()
