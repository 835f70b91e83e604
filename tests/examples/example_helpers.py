"""Runs what the README and the guide say, as a reader would: a script in a new Python on the software driver."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import openvino as ov
from openvino import opset13 as ops

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def run_example(
    example: str,
    directory: Path,
    python: Sequence[str] = (sys.executable,),
    environment: Mapping[str, str] | None = None,
) -> str:
    """What the script prints, which must end well. `directory` is where it runs, and may hold a model."""
    script = directory / "example.py"
    script.write_text(example, encoding="utf-8")
    done = subprocess.run(
        [*python, str(script)],
        cwd=directory,
        env={**os.environ, "L0PY_SOFTDRIVER": "1", **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def save_model(directory: Path) -> None:
    """`model.xml`: an image in, 1000 scores out, all 0 but number 417: the mean of the image's first plane."""
    image = ops.parameter([1, 3, 224, 224], ov.Type.f32, name="image")
    image.output(0).get_tensor().set_names({"image"})
    weights = np.zeros((3, 1000), np.float32)
    weights[0, 417] = 1
    scores = ops.matmul(ops.reduce_mean(image, np.array([2, 3]), keep_dims=False), weights, False, False)
    scores.output(0).get_tensor().set_names({"scores"})
    ov.save_model(ov.Model([scores], [image], "model"), directory / "model.xml", compress_to_fp16=False)
