"""Builds of the native part alone, kept below build/ from run to run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SANITIZERS = {"native": "", "asan": "address,undefined", "tsan": "thread"}
# Tools that were installed with the project come before the system's.
ENVIRONMENT = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def tool(name: str) -> str:
    found = shutil.which(name, path=ENVIRONMENT["PATH"])
    if found is None:
        pytest.skip(f"no {name}")
    return found


def run(*command: str | Path, timeout: float) -> None:
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"


def compiler() -> str:
    """The C++ compiler that CMake takes."""
    for name in filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++")):
        if found := shutil.which(name):
            return found
    pytest.skip("no C++ compiler")


def require_sanitizers(sanitizers: str) -> None:
    """Some compilers take the option and have no runtime library for it, or none that runs here."""
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory, "program")
        source = Path(directory, "program.cpp")
        source.write_text("int main() { return 0; }\n")
        for command in ([compiler(), f"-fsanitize={sanitizers}", source, "-o", program], [program]):
            if subprocess.run(command, capture_output=True, check=False).returncode != 0:
                pytest.skip(f"{compiler()} has no usable -fsanitize={sanitizers}")


@cache
def build(kind: str) -> Path:
    """Configures and builds one of `SANITIZERS`' kinds; answers its directory."""
    compiler()
    sanitizers = SANITIZERS[kind]
    if sanitizers:
        require_sanitizers(sanitizers)
    directory = ROOT / "build" / kind
    options = ["-DL0PY_PYTHON_MODULE=OFF", "-DL0PY_NATIVE_TESTS=ON", f"-DL0PY_SANITIZE={sanitizers}"]
    ninja = [f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}"]
    run(tool("cmake"), "-S", ROOT, "-B", directory, "-G", "Ninja", *options, *ninja, timeout=120)
    run(tool("cmake"), "--build", directory, "--parallel", str(os.cpu_count()), timeout=1500)
    return directory
