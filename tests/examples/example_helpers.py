"""Runs what the README and the guide say, as a reader would: a script in a new Python on the software driver."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

INDEX = Path(__file__).resolve().parents[2] / "docs" / "guide" / "index.md"


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
    """`model.xml`, by the guide's own block: an image in, 1000 scores out."""
    (block,) = re.findall(r"```python\n(.*?)```", INDEX.read_text(encoding="utf-8"), re.DOTALL)
    before = Path.cwd()
    os.chdir(directory)
    try:
        exec(block, {})
    finally:
        os.chdir(before)
