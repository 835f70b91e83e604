"""Anybody's program, unmodified: `python -m l0py softdriver -- benchmark_app ...` finds the software NPU."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import openvino as ov
import pytest
from plugin_helpers import conv_model

if TYPE_CHECKING:
    from collections.abc import Callable

BENCHMARK_APP = Path(sys.executable).parent / "benchmark_app"
OURS = ("L0PY_SOFTDRIVER", "L0PY_LOADER", "ZE_ENABLE_ALT_DRIVERS", "LD_PRELOAD", "LD_LIBRARY_PATH")
DEVICE_NAMES = """
import openvino
core = openvino.Core()
print([core.get_property(device, "FULL_DEVICE_NAME") for device in core.available_devices])
"""


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a program in an environment that nothing of l0py has touched."""
    clean = {name: value for name, value in os.environ.items() if name not in OURS} | environment
    return subprocess.run(command, capture_output=True, text=True, env=clean, check=False, timeout=120)


def on_the_software_npu(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-m", "l0py", "softdriver", "--", *command, **environment)


def small() -> ov.Model:
    return conv_model()


def text_detection() -> ov.Model:
    """The demo's model, for a picture of its size."""
    pytest.importorskip("rapidocr")
    ocr = pytest.importorskip("ovadapter.demo.ocr")
    return ocr.read_detector(ov.Core(), 191, 384)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[], ov.Model]], Path]:
    """A model as a file, made once."""
    directory = tmp_path_factory.mktemp("models")

    def save(make: Callable[[], ov.Model]) -> Path:
        path = directory / f"{make.__name__}.xml"
        if not path.exists():
            ov.save_model(make(), path)
        return path

    return save


@pytest.mark.parametrize("hint", ["latency", "throughput"])
@pytest.mark.parametrize("make", [small, text_detection])
def test_runs_to_its_end(saved: Callable[..., Path], tmp_path: Path, make: Callable[[], ov.Model], hint: str) -> None:
    record = tmp_path / "record.json"
    command = (BENCHMARK_APP, "-m", saved(make), "-d", "NPU", "-hint", hint, "-t", "2")
    done = on_the_software_npu(*command, L0PY_SOFTDRIVER_RECORD=str(record))
    assert done.returncode == 0, done.stdout + done.stderr
    (iterations,) = re.findall(r"Count:\s+(\d+) iterations", done.stdout)
    assert int(iterations) >= 1
    requests = re.search(r"OPTIMAL_NUMBER_OF_INFER_REQUESTS: (\d+)", done.stdout)
    assert requests is not None
    assert (int(requests[1]) > 1) == (hint == "throughput")
    # One more than it counts warms up.
    assert json.loads(record.read_text())["executed"] == int(iterations) + 1


def test_the_device_is_ours_and_no_other() -> None:
    with_tool = on_the_software_npu(sys.executable, "-c", DEVICE_NAMES)
    assert "l0py software NPU" in with_tool.stdout, with_tool.stderr
    without = run(sys.executable, "-c", DEVICE_NAMES)
    assert without.returncode == 0, without.stderr
    assert "l0py software NPU" not in without.stdout


@pytest.mark.skipif(Path("/dev/accel").exists(), reason="there may be a real NPU")
def test_without_the_tool_there_is_no_npu(saved: Callable[..., Path]) -> None:
    done = run(BENCHMARK_APP, "-m", saved(small), "-d", "NPU", "-t", "1")
    assert done.returncode != 0
    assert "iterations" not in done.stdout
    assert "NPU" in done.stdout + done.stderr


def test_the_program_s_own_status_and_output() -> None:
    done = on_the_software_npu(sys.executable, "-c", "import sys; print('out'); sys.exit(7)")
    assert (done.returncode, done.stdout) == (7, "out\n")
    assert on_the_software_npu("/nonexistent/program").returncode == 127
