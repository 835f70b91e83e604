"""Debian 12's loader 1.8: enough for l0py, too old for OpenVINO."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from probe import L0PY_TESTS, ask, run

pytestmark = pytest.mark.loaders

ROOT = Path(__file__).resolve().parents[2]
SUCCESS = 0
#: The layers of loader 1.8 with every check that they have.
CHECKS = {
    "ZE_ENABLE_VALIDATION_LAYER": "1",
    "ZE_ENABLE_PARAMETER_VALIDATION": "1",
    "ZE_ENABLE_HANDLE_LIFETIME": "1",
    "ZE_ENABLE_THREADING_VALIDATION": "1",
}
#: This loader tells its version only when it is initialized.
WHICH_LOADER = """
import json, l0py, l0py.loader
kinds = [driver.kind for driver in l0py.drivers()]
loader = l0py.loader.info()
print(json.dumps(loader._asdict() | {"version": loader.version, "kinds": kinds}))
"""


@pytest.fixture(scope="module")
def environment(debian12_loader: Path) -> dict[str, str]:
    """The old loader installed where the dynamic linker looks."""
    return {"LD_LIBRARY_PATH": str(debian12_loader.parent), "L0PY_SOFTDRIVER": "1"}


def test_software_driver_behind_it(debian12_loader: Path, software_driver: Path) -> None:
    """This loader initializes every driver twice, and its tables are smaller than today's."""
    script = "answer([hasattr(ze, 'zeInitDrivers'), ze.zeInit(0), ze.zeInit(0), driver_count()[0]])"
    answer = ask(debian12_loader, script, drivers=[software_driver], LD_LIBRARY_PATH=str(debian12_loader.parent))
    assert answer == [False, SUCCESS, SUCCESS, SUCCESS]


def test_second_driver_behind_it(debian12_loader: Path, second_driver: Path, software_driver: Path) -> None:
    """Either alone, and both together."""
    counts = [
        ask(debian12_loader, "answer([ze.zeInit(0), driver_count()])", drivers=drivers)[1][1]
        for drivers in ([second_driver], [software_driver], [second_driver, software_driver])
    ]
    assert counts[0] == 1
    assert counts[2] == counts[0] + counts[1]


@pytest.mark.slow
@pytest.mark.parametrize("file", L0PY_TESTS)
@pytest.mark.parametrize(
    "layers", [{}, CHECKS, {"ZE_ENABLE_LOADER_INTERCEPT": "1"}], ids=["plain", "checks", "intercept"]
)
def test_l0py_passes_its_tests(
    debian12_loader: Path, environment: dict[str, str], layers: dict[str, str], file: str
) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(ROOT / "tests" / "l0py" / file)]
    run(command, timeout=250, L0PY_LOADER=str(debian12_loader), **environment, **layers)


def test_l0py_takes_it_when_told(debian12_loader: Path, environment: dict[str, str]) -> None:
    command = [sys.executable, "-c", WHICH_LOADER]
    facts = json.loads(run(command, L0PY_LOADER=str(debian12_loader), **environment))
    assert facts["source"] == "override"
    assert facts["version"].startswith("1.8.")
    assert "npu" in facts["kinds"]


def test_l0py_prefers_the_embedded_one(embedded_loader: Path, environment: dict[str, str]) -> None:
    """Because OpenVINO could not use the other, and there are never two; the reason says so."""
    facts = json.loads(run([sys.executable, "-c", WHICH_LOADER], L0PY_LOADER=None, **environment))
    assert facts["source"] == "embedded"
    assert Path(facts["path"]).samefile(embedded_loader)
    assert "too old for OpenVINO" in facts["reason"]
    assert "npu" in facts["kinds"]


@pytest.mark.slow
def test_openvino_gets_the_embedded_one(environment: dict[str, str]) -> None:
    pytest.importorskip("openvino")
    outcome = json.loads(run([sys.executable, "-m", "ovadapter", "demo", "--json"], timeout=280, **environment))
    assert outcome["loader"]["source"] == "embedded"
    assert "too old for OpenVINO" in outcome["loader"]["reason"]
    assert outcome["all_zero_copy"] is True
    assert outcome["max_abs_diff"] == 0
