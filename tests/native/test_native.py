"""The native tests, plain and under sanitizers, and the demo under AddressSanitizer and UBSan."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import native_builds
import pytest

#: The demo with loader and driver out of the directory that it is given, the driver's record included.
DEMO = """
import sys
from pathlib import Path
from l0py import loader
directory = Path(sys.argv[1])
loader.native_dir = lambda: directory
from ovadapter.__main__ import main
sys.argv[1:] = ["demo", "--json"]
sys.exit(main())
"""


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


@pytest.mark.sanitizers
@pytest.mark.timeout(1800)
def test_demo_under_sanitizers(tmp_path: Path) -> None:
    """Leaks are the native tests' matter: Python and OpenVINO keep much until the end on purpose."""
    for package in ("openvino", "skimage", "rapidocr"):
        pytest.importorskip(package)
    libraries = native_builds.build("asan") / "l0py" / "native"
    loader = libraries / "libze_loader.so.1"
    environment = native_builds.ENVIRONMENT | {
        # Python is not built with the sanitizer; without the C++ library beside it exceptions are not understood.
        "LD_PRELOAD": f"{runtime_library('libasan.so')} {runtime_library('libstdc++.so')}",
        "ASAN_OPTIONS": f"detect_leaks=0:log_path={tmp_path}/report",
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={tmp_path}/report",
        "TBB_ENABLE_SANITIZERS": "1",  # else it opens libraries in a way that AddressSanitizer forbids
        "L0PY_SOFTDRIVER": "1",
        "L0PY_LOADER": str(loader),
    }
    command = [sys.executable, "-c", DEMO, str(libraries)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    reports = "\n".join(report.read_text() for report in sorted(tmp_path.glob("report*")))
    assert reports == ""
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["loader"]["path"] == str(loader)
    assert set(outcome["zero_copy"].values()) == {True}
    assert set(outcome["evidence"].values()) == {"driver record"}
    assert outcome["max_abs_diff"] == 0
