"""The README's examples do what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from example_helpers import run_example, save_model

README = Path(__file__).resolve().parents[1] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
MEMORY, SHARE, RAW = EXAMPLES


def test_memory_in_inference_out(tmp_path: Path) -> None:
    save_model(tmp_path)
    assert run_example(MEMORY, tmp_path) == "417\n"


def test_gpu_memory_for_the_npu(tmp_path: Path) -> None:
    save_model(tmp_path)
    assert run_example(SHARE, tmp_path, environment={"L0PY_SOFTDRIVER": "npu,gpu"}) == "dma_buf False\n"


def test_raw_level_zero(tmp_path: Path) -> None:
    run_example(RAW + "\nassert count[0] >= 1", tmp_path)


def test_the_paths_are_printed(tmp_path: Path) -> None:
    for option in ("--path", "--loader-path"):
        command = [sys.executable, "-m", "l0py", "softdriver", option]
        printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        assert Path(printed.strip()).is_file()
