"""What Intel's drivers do differently with memory, row by row: the software drivers do each as the release does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from other_loaders import has_layer

RELEASES = ("npu", "22.43", "26.13", "26.14")
FDS = [["dma_buf"], ["dma_buf"]]
BOTH = [["dma_buf", "opaque_fd"], ["dma_buf", "opaque_fd"]]
OK, KEPT = "SUCCESS", "kept, closed after the free"
ARGUMENT, FEATURE, NO_MEMORY = "INVALID_ARGUMENT", "UNSUPPORTED_FEATURE", "OUT_OF_DEVICE_MEMORY"
ENUM, NO_ENUM = "UNSUPPORTED_ENUMERATION", "INVALID_ENUMERATION"

#: For the NPU's driver 1.32.1, and the GPU's 22.43, 26.13, 26.14. Imports: the result, whether it is the descriptor's
#: memory, whether the descriptor is still open.
TABLE: dict[str, tuple[Any, Any, Any, Any]] = {
    "api version": ([1, 13], [1, 3], [1, 15], [1, 15]),
    "handle types": (FDS, FDS, BOTH, BOTH),
    "host import": ([OK, True, True], [OK, False, True], [OK, True, True], [OK, True, False]),
    "device import": ([OK, True, True], [OK, True, True], [OK, True, True], [OK, True, False]),
    "shared import": ([OK, True, True], [OK, False, True], [OK, False, True], [OK, False, True]),
    "import flags 0": (NO_ENUM, ENUM, ENUM, ENUM),
    "import flags of two": (NO_ENUM, ENUM, ENUM, ENUM),
    "import of no memory": (NO_MEMORY, ARGUMENT, ARGUMENT, ARGUMENT),
    "import of a closed fd": (NO_MEMORY, ARGUMENT, ARGUMENT, ARGUMENT),
    "import of too little": (4096, 4096, 4096, 4096),
    "import in a second link": (False, True, True, True),
    "export flags 0": (NO_ENUM, ENUM, ENUM, ENUM),
    "export flags opaque_fd": (NO_ENUM, ENUM, OK, OK),
    "export flags of two": (NO_ENUM, OK, OK, OK),
    "host export": (OK, FEATURE, OK, OK),
    "shared export": (OK, FEATURE, FEATURE, FEATURE),
    "export of another kind": ([OK, False], [ENUM, False], [OK, True], [OK, True]),
    "two exports": ("new, open after the free", "new, open after the free", KEPT, KEPT),
    "export that was not asked for": (["NOT_AVAILABLE", 0], [OK, 4096], [OK, 2 << 20], [OK, 2 << 20]),
    "unknown query": (OK, NO_ENUM, NO_ENUM, NO_ENUM),
    "unknown link, host": (OK, OK, ENUM, ENUM),
    "unknown link, device": (OK, ENUM, ENUM, ENUM),
    "unknown link, shared": (OK, OK, ENUM, ENUM),
    "host pages": (
        [OK, True, "UNSUPPORTED_SIZE"],
        [OK, False, OK],
        [OK, True, "OUT_OF_HOST_MEMORY"],
        [OK, True, "OUT_OF_HOST_MEMORY"],
    ),
    "size 0": ("UNSUPPORTED_SIZE", OK, "UNSUPPORTED_SIZE", "UNSUPPORTED_SIZE"),
    "alignment 3": ("UNSUPPORTED_ALIGNMENT", OK, OK, OK),
    "alignment 64": (0, 0, 0, 0),
    "alignment 2 MiB": (False, False, True, True),
    "too large": (NO_MEMORY, "UNSUPPORTED_SIZE", "UNSUPPORTED_SIZE", "UNSUPPORTED_SIZE"),
    "foreign address": (
        ["NOT_AVAILABLE", "untouched", "NOT_AVAILABLE", ARGUMENT],
        [OK, "UNKNOWN", "UNKNOWN", ARGUMENT],
        [OK, "UNKNOWN", "ADDRESS_NOT_FOUND", ARGUMENT],
        [OK, "UNKNOWN", "ADDRESS_NOT_FOUND", ARGUMENT],
    ),
    "told of host": ([4096, "untouched", False], [4096, "none", True], [4096, "none", True], [4096, "none", True]),
    "told of device": (
        [4096, "untouched", False],
        [65536, "device", True],
        [65536, "device", True],
        [65536, "device", True],
    ),
    "told of large device": (
        [4096, "untouched", False],
        [65536, "device", True],
        [2 << 20, "device", True],
        [2 << 20, "device", True],
    ),
    "free twice": ([OK, ARGUMENT], [OK, ARGUMENT], [OK, ARGUMENT], [OK, ARGUMENT]),
    "free within": (ARGUMENT, OK, OK, OK),
    "free within a pool": (ARGUMENT, OK, ARGUMENT, ARGUMENT),
    "free, blocking": (FEATURE, OK, OK, OK),
    "free, deferred": (FEATURE, FEATURE, OK, OK),
    "ipc of host": (FEATURE, OK, OK, OK),
    "ipc of device": (FEATURE, OK, OK, OK),
    "ipc of shared": (FEATURE, OK, FEATURE, FEATURE),
    "access to itself": ([FEATURE, 7], [OK, 1], [OK, 1], [OK, 1]),
    "residency of a foreign address": (FEATURE, ARGUMENT, ARGUMENT, ARGUMENT),
    "system barrier": (FEATURE, FEATURE, OK, OK),
    "system barrier of no device": (FEATURE, FEATURE, ARGUMENT, ARGUMENT),
    "context destroyed before its memory": (OK, OK, OK, OK),
    "context status": (OK, OK, OK, OK),
    "device status": (OK, FEATURE, OK, OK),
}


#: Rows that a validation layer answers before the driver is asked.
CHECKED = ("unknown query", "size 0", "alignment 3")


@pytest.fixture(scope="session")
def answers() -> Any:
    """By release: what the driver answered, each asked once in a process of its own."""

    @cache
    def run(release: str) -> subprocess.CompletedProcess[str]:
        script = Path(__file__).with_name("driver_behaviour.py")
        environment = {**os.environ, "L0PY_SOFTDRIVER": "npu" if release == "npu" else "gpu"}
        command = [sys.executable, str(script), release]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    def ask(release: str) -> dict[str, Any]:
        done = run(release)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    return ask


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("row", TABLE)
def test_row(row: str, release: str, answers: Any) -> None:
    if row in CHECKED and has_layer("ZE_ENABLE_PARAMETER_VALIDATION"):
        pytest.skip("this loader's validation layer answers first")
    answer = answers(release)[row]
    if answer is None:
        pytest.skip("a loader that wraps handles may look into null ones")
    assert answer == TABLE[row][RELEASES.index(release)]


def test_every_row_is_asked(answers: Any) -> None:
    assert set(answers("npu")) == set(TABLE)
