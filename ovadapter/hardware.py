"""Real hardware where it works, the software driver elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from l0py import loader

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["choose_driver"]


def choose_driver(progress: Callable[[str], None]) -> None:
    """Real hardware where it works, the software driver elsewhere; the user's own L0PY_SOFTDRIVER decides before that.

    Must run before l0py loads anything, and sets the variable for the process that sends the picture, too.
    """
    if loader.software_drivers_wanted() is not None:
        return
    if not _has_npu():
        reason = "no Intel NPU here"
    else:
        probe = subprocess.run(
            [sys.executable, "-c", "import l0py; l0py.find_device('npu')"], capture_output=True, text=True, check=False
        )
        if probe.returncode == 0:
            return
        reason = "the NPU cannot be used: " + (probe.stderr.strip().splitlines() or ["no reason given"])[-1]
    progress(f"{reason}; the software driver stands in for it")
    os.environ["L0PY_SOFTDRIVER"] = "1"


def _has_npu() -> bool:
    """Whether the kernel drives an Intel NPU; says nothing about the drivers in user space. On Windows these tell."""
    if sys.platform == "win32":
        return True
    drivers = Path("/sys/class/accel").glob("accel*/device/driver")
    return any(driver.resolve().name == "intel_vpu" for driver in drivers)
