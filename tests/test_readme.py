"""The README's examples do what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

README = Path(__file__).resolve().parents[1] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
MEMORY, RAW = EXAMPLES


def run(example: str, directory: Path) -> str:
    script = directory / "example.py"
    script.write_text(example, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=directory,
        env={**os.environ, "L0PY_SOFTDRIVER": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """`model.xml`: the largest score is number 417."""
    image = ops.parameter([1, 3, 224, 224], ov.Type.f32, name="image")
    image.output(0).get_tensor().set_names({"image"})
    weights = np.zeros((3, 1000), np.float32)
    weights[:, 417] = 1
    scores = ops.matmul(ops.reduce_mean(image, np.array([2, 3]), keep_dims=False), weights, False, False)
    scores.output(0).get_tensor().set_names({"scores"})
    ov.save_model(ov.Model([scores], [image], "model"), tmp_path / "model.xml", compress_to_fp16=False)
    return tmp_path


def test_memory_in_inference_out(model: Path) -> None:
    assert run(MEMORY, model) == "417\n"


def test_raw_level_zero(tmp_path: Path) -> None:
    run(RAW + "\nassert count[0] >= 1", tmp_path)


def test_the_paths_are_printed(tmp_path: Path) -> None:
    for option in ("--path", "--loader-path"):
        command = [sys.executable, "-m", "l0py", "softdriver", option]
        printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        assert Path(printed.strip()).is_file()
