"""The demo's one line, from a clean checkout, where there is no compiler, no Python.h and no cmake to be found."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD_TOOLS = re.compile(r"(.*-)?(gcc|g\+\+|cc|c\+\+|c99|c89|clang|clang\+\+|cmake|ninja|make|ld|ar|ranlib)(-[\d.]+)?")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What git would hand out, with the changes of the work tree."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    copy = tmp_path / "checkout"
    for name in filter(None, os.fsdecode(listing.stdout).split("\0")):
        source, target = ROOT / name, copy / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
            target.chmod(source.stat().st_mode)
    return copy


@pytest.fixture
def without_build_tools(tmp_path: Path) -> str:
    """A PATH with everything of the system but compilers and build tools."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for folder in ("/usr/local/bin", "/usr/bin", "/bin"):
        for tool in Path(folder).iterdir() if Path(folder).is_dir() else ():
            if not BUILD_TOOLS.fullmatch(tool.name) and not (directory / tool.name).is_symlink():
                (directory / tool.name).symlink_to(tool)
    return str(directory)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_demo_sets_itself_up(checkout: Path, without_build_tools: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("CC", "CXX", "L0PY_SOFTDRIVER")}
    environment |= {
        "PATH": without_build_tools,
        "PYTHON": str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"),
        "SKBUILD_CMAKE_DEFINE": "L0PY_PYTHON_HEADERS=OFF",
    }
    done = subprocess.run(
        ["scripts/demo", "--json", "--device", "NPU"],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["driver"] in ("software", outcome["device_name"])
    assert all(outcome["zero_copy"].values())
    assert len(outcome["zero_copy"]) == 4
    assert outcome["max_abs_diff"] == 0
    module = next((checkout / "build").glob("*/l0py/native/_ffi*.so"))
    assert module.name == "_ffi.abi3.so"
    compiler = next((checkout / "build").glob("*/CMakeFiles/*/CMakeCXXCompiler.cmake")).read_text()
    assert "zig-c++" in compiler
