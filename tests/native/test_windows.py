"""The native part for Windows: cross-compiled, and its tests run under Wine."""

from __future__ import annotations

import os
import re
import subprocess

import native_builds
import pytest
import windows_tools

#: By library: how the names begin that it exports.
LIBRARIES = {
    "ze_loader.dll": "ze",
    "l0py_softdriver.dll": ("ze", "l0sd_"),
    "l0py_softgpu.dll": ("ze", "l0sd_"),
    "_ffi.pyd": "PyInit__ffi",
}
#: What every Windows has, and Python. Everything else, the compiler's runtime first of all, must be in the libraries.
ALWAYS_THERE = {"kernel32.dll", "msvcrt.dll", "advapi32.dll", "setupapi.dll", "python3.dll"}


@pytest.fixture(scope="module")
def tools() -> windows_tools.Tools:
    try:
        return windows_tools.find_tools()
    except windows_tools.Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def build(tools: windows_tools.Tools) -> str:
    """The directory of the build."""
    directory = native_builds.ROOT / "build" / "windows"
    native_builds.run(
        native_builds.tool("cmake"), "-S", native_builds.ROOT, "-B", directory, "-G", "Ninja",
        f"-DCMAKE_MAKE_PROGRAM={native_builds.tool('ninja')}",
        "-DL0PY_PYTHON_MODULE=ON", "-DL0PY_PYTHON_HEADERS=OFF", "-DL0PY_NATIVE_TESTS=ON",  # those here are Linux's
        "-DCMAKE_BUILD_TYPE=Debug",  # the compiler's time is what this costs
        "-DCMAKE_SYSTEM_NAME=Windows", "-DCMAKE_SYSTEM_PROCESSOR=x86_64",
        f"-DCMAKE_C_COMPILER={tools.program('gcc')}", f"-DCMAKE_CXX_COMPILER={tools.program('g++')}",
        f"-DCMAKE_RC_COMPILER={tools.program('windres')}", f"-DCMAKE_AR={tools.program('ar')}",
        "-DCMAKE_CXX_FLAGS=-Werror", "-DCMAKE_EXE_LINKER_FLAGS=-static",
        f"-DCMAKE_CROSSCOMPILING_EMULATOR={tools.wine}",
        timeout=120,
    )  # fmt: skip
    native_builds.run(
        native_builds.tool("cmake"), "--build", directory, "--parallel", str(os.cpu_count()), timeout=1500
    )
    return str(directory)


@pytest.mark.windows
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_needs_nothing_but_what_is_always_there(tools: windows_tools.Tools, build: str, library: str) -> None:
    command = [tools.program("objdump"), "-p", f"{build}/l0py/native/{library}"]
    headers = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    needed = {name.lower() for name in re.findall(r"DLL Name: (\S+)", headers)}
    assert "kernel32.dll" in needed
    assert needed <= ALWAYS_THERE
    exported = set(re.findall(r"^\t\[ *\d+\] (?:\+base\[ *\d+\] +[0-9a-f]+ )?(\w+)$", headers, re.MULTILINE))
    assert exported
    assert {name for name in exported if not name.startswith(LIBRARIES[library])} == set()


@pytest.mark.windows
@pytest.mark.timeout(1800)
def test_under_wine(tools: windows_tools.Tools, build: str) -> None:
    ctest = [native_builds.tool("ctest"), "--test-dir", build, "--output-on-failure", "--no-tests=error"]
    try:
        with windows_tools.windows(tools) as environment:
            done = subprocess.run(ctest, env=environment, capture_output=True, text=True, timeout=600, check=False)
    except windows_tools.Unavailable as reason:
        pytest.skip(str(reason))
    assert done.returncode == 0, done.stdout + done.stderr
