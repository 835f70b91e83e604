"""clang-tidy finds nothing in the native sources; .clang-tidy says what it looks for."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import native_builds
import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_clang_tidy() -> None:
    command = [native_builds.tool("clang-tidy"), "-p", str(native_builds.build("native")), "--quiet"]
    native = native_builds.ROOT / "l0py" / "native"
    found = [path for part in ("softdriver", "loader", "platform") for path in native.glob(f"{part}/**/*.cpp")]
    sources = sorted(path for path in found if not path.stem.endswith("_windows"))  # these are built elsewhere
    assert sources

    def complaints(source: Path) -> str:
        done = subprocess.run([*command, str(source)], capture_output=True, text=True, timeout=300, check=False)
        return "" if done.returncode == 0 else f"{done.stdout}{done.stderr}"

    with ThreadPoolExecutor(os.cpu_count()) as workers:
        assert "".join(workers.map(complaints, sources)) == ""
