"""The native tests, plain and under sanitizers, and the demo under AddressSanitizer and UBSan."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import native_builds
import pytest

#: Takes loader and driver out of the directory that it is given, the driver's record included.
PREPARE = """
import sys
from pathlib import Path
from l0py import loader
directory = Path(sys.argv.pop(1))
loader.native_dir = lambda: directory
"""

DEMO = """
from ovadapter.__main__ import main
sys.argv[1:] = ["demo", "--json"]
sys.exit(main())
"""

PYTEST = """
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""

#: Those of the plugin's tests that make graphs of all kinds, in one process and in seconds.
GRAPHS = ["shapes", "element_types", "states", "export_import", "broken_model", "profiling"]


def run_native_tests(build: Path) -> None:
    native_builds.run(
        native_builds.tool("ctest"), "--test-dir", build, "--output-on-failure", "--no-tests=error", timeout=600
    )


@pytest.mark.timeout(1800)
def test_plain() -> None:
    run_native_tests(native_builds.build("native"))


@pytest.mark.sanitizers
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["asan", "tsan"])
def test_under_sanitizers(kind: str) -> None:
    run_native_tests(native_builds.build(kind))


def runtime_library(name: str) -> str:
    command = [native_builds.compiler(), f"-print-file-name={name}"]
    path = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(path).is_absolute():
        pytest.skip(f"{command[0]} has no {name} to load into Python")
    return path


def under_sanitizers(script: str, *arguments: str, reports: Path) -> str:
    """Runs Python with the native part of the build "asan"; answers stdout. No report, or the test fails.

    Leaks are the native tests' matter: Python and OpenVINO keep much until the end on purpose.
    """
    libraries = native_builds.build("asan") / "l0py" / "native"
    environment = native_builds.ENVIRONMENT | {
        # Python is not built with the sanitizer; without the C++ library beside it exceptions are not understood.
        "LD_PRELOAD": f"{runtime_library('libasan.so')} {runtime_library('libstdc++.so')}",
        "ASAN_OPTIONS": f"detect_leaks=0:log_path={reports}/report",
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={reports}/report",
        "TBB_ENABLE_SANITIZERS": "1",  # else it opens libraries in a way that AddressSanitizer forbids
        "L0PY_SOFTDRIVER": "1",
        "L0PY_LOADER": str(libraries / "libze_loader.so.1"),
    }
    command = [sys.executable, "-c", PREPARE + script, str(libraries), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert "\n".join(report.read_text() for report in sorted(reports.glob("report*"))) == ""
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.sanitizers
@pytest.mark.timeout(1800)
def test_demo_under_sanitizers(tmp_path: Path) -> None:
    for package in ("openvino", "skimage", "rapidocr"):
        pytest.importorskip(package)
    outcome = json.loads(under_sanitizers(DEMO, reports=tmp_path))
    assert outcome["loader"]["path"] == str(native_builds.build("asan") / "l0py" / "native" / "libze_loader.so.1")
    assert set(outcome["zero_copy"].values()) == {True}
    assert set(outcome["evidence"].values()) == {"driver record"}
    assert outcome["max_abs_diff"] == 0


@pytest.mark.sanitizers
@pytest.mark.timeout(1800)
def test_graphs_under_sanitizers(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    files = [str(native_builds.ROOT / "tests" / "plugin" / f"test_{name}.py") for name in GRAPHS]
    once = ("-k", "not imported")  # most run twice: with the compiled model, and with the imported one
    assert " passed" in under_sanitizers(PYTEST, "-q", "-p", "no:cacheprovider", *once, *files, reports=tmp_path)
