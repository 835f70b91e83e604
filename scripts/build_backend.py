"""scikit-build-core, with a compiler from PyPI where the machine has none."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import sys
from pathlib import Path
from typing import Any

from scikit_build_core import build as backend

ZIG = "ziglang==0.15.2"


def _has_compiler() -> bool:
    """Whether CMake would find C and C++ compilers by itself."""
    c = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    cxx = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    return bool(c and cxx)


def _use_zig() -> None:
    """Points CMake to zig's compilers through small scripts, because it takes no command with arguments."""
    if _has_compiler():
        return
    directory = Path(__file__).resolve().parent.parent / "build" / "zig"
    directory.mkdir(parents=True, exist_ok=True)
    for variable, tool in {"CC": "cc", "CXX": "c++"}.items():
        script = directory / f"zig-{tool}"
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m ziglang {tool} "$@"\n')
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        os.environ[variable] = str(script)
    if not _home_is_writable():  # where zig would keep its cache
        os.environ.setdefault("ZIG_GLOBAL_CACHE_DIR", str(directory / "cache"))
    print("l0py: no C++ compiler on this machine: building with zig from PyPI.", file=sys.stderr)
    print("l0py: its first C++ build takes some minutes; later ones use its cache.", file=sys.stderr)


def _home_is_writable() -> bool:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "zig"
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: there is no home at all
        return False
    return os.access(cache, os.W_OK)


def _requires(found: list[str]) -> list[str]:
    return found if _has_compiler() else [*found, ZIG]


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """What pip installs before a build."""
    return _requires(backend.get_requires_for_build_wheel(config_settings))


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """The same for `pip install -e`."""
    return _requires(backend.get_requires_for_build_editable(config_settings))


def build_wheel(directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Builds the wheel."""
    _use_zig()
    return backend.build_wheel(directory, config_settings, metadata_directory)


def build_editable(directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Builds the wheel of an editable install."""
    _use_zig()
    return backend.build_editable(directory, config_settings, metadata_directory)


get_requires_for_build_sdist = backend.get_requires_for_build_sdist
build_sdist = backend.build_sdist
prepare_metadata_for_build_wheel = backend.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = backend.prepare_metadata_for_build_editable
