"""Which Level Zero loader this process uses: found once, bound once, and told why.

The order: `L0PY_LOADER` (a path, not second-guessed), a loader that is already in the process, the system's if it is
good enough for OpenVINO, the embedded one. There are never two in one process.
"""

from __future__ import annotations

import os
import sys
import threading
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from . import _ffi
from ._ffi import ffi, lib
from ._functions import SINCE
from .errors import FunctionMissing, InvalidArgument, LoaderNotFound

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["LoaderInfo", "bind", "embedded_path", "info", "native_dir", "software_driver_path"]

_WINDOWS = sys.platform == "win32"
SONAME = "ze_loader.dll" if _WINDOWS else "libze_loader.so.1"

#: What OpenVINO's NPU plugin wants that loaders before 1.10 lack.
_OPENVINO_NEEDS = b"zeCommandListHostSynchronize"

#: The software drivers, by what they drive, and the names of their libraries.
SOFTWARE_DRIVERS = {"npu": "l0py_softdriver", "gpu": "l0py_softgpu"}

_lock = threading.Lock()
_bound: LoaderInfo | None = None


class LoaderInfo(NamedTuple):
    """The bound loader: its file, where it was found, why it was taken, and how many functions it has.

    `source` is `"override"`, `"process"`, `"system"` or `"embedded"`.
    """

    path: str
    source: str
    reason: str
    functions: int

    @property
    def version(self) -> str:
        """`"1.20.6"`; `"unknown"` when the loader does not tell (before init, old ones do not).

        Calls zelGetLoaderVersion or zelLoaderGetVersions.
        """
        return _version()


def native_dir() -> Path:
    """Where the embedded loader and the software drivers lie: beside the compiled module."""
    from pathlib import Path  # here, because it takes a third of the import's time

    return Path(_ffi.__file__).resolve().parent / "_native"


def embedded_path() -> Path:
    """The embedded loader's file."""
    return native_dir() / SONAME


def software_driver_path(driver: str = "npu") -> Path:
    """A software driver's file: `"npu"` or `"gpu"`. Raises `InvalidArgument`."""
    library = SOFTWARE_DRIVERS.get(driver)
    if library is None:
        raise InvalidArgument(f"{driver!r} is no software driver: there are {', '.join(SOFTWARE_DRIVERS)}")
    return native_dir() / (f"{library}.dll" if _WINDOWS else f"lib{library}.so")


def add_software_drivers(*drivers: str) -> None:
    """Has loaders open software drivers: from then on, and only if nobody has initialised them yet.

    They come after other drivers that `ZE_ENABLE_ALT_DRIVERS` names, and replace the system's own. Raises
    `InvalidArgument` for a release in `L0PY_SOFTGPU_RELEASE` that the GPU's does not imitate.
    """
    if "gpu" in drivers:
        _require_release(os.environ.get("L0PY_SOFTGPU_RELEASE", ""))
    named = [name for name in os.environ.get("ZE_ENABLE_ALT_DRIVERS", "").split(",") if name]
    for path in map(str, map(software_driver_path, drivers)):
        if path not in named:
            named.append(path)
    os.environ["ZE_ENABLE_ALT_DRIVERS"] = ",".join(named)


@cache
def _require_release(release: str) -> None:
    """Asks the driver, which itself passes over a release that it does not know."""
    library = release and lib.l0_library_open(os.fsencode(software_driver_path("gpu")), False)
    imitate = library and lib.l0_library_symbol(library, b"l0sd_imitate")
    if imitate and ffi.cast("int(*)(const char*)", imitate)(os.fsencode(release)) != 0:
        raise InvalidArgument(
            f"L0PY_SOFTGPU_RELEASE={release} in the environment means nothing: it is 22.43, 26.13, 26.14, or unset"
        )


def software_drivers_wanted() -> tuple[str, ...] | None:
    """What `L0PY_SOFTDRIVER` says: 1 (the NPU's), a list such as `npu,gpu`, or 0 (none); None when unset or empty.

    Raises `InvalidArgument` for all else.
    """
    said = os.environ.get("L0PY_SOFTDRIVER", "")
    if said in ("", "0", "1"):
        return {"": None, "0": (), "1": ("npu",)}[said]
    wanted = tuple(said.split(","))
    if not SOFTWARE_DRIVERS.keys() >= set(wanted):
        known = ",".join(SOFTWARE_DRIVERS)
        raise InvalidArgument(f"L0PY_SOFTDRIVER={said} in the environment means nothing: it is 1, 0, unset, or {known}")
    return wanted


def info() -> LoaderInfo:
    """The bound loader; binds it first if need be. Raises `LoaderNotFound`."""
    return bind()


def bind() -> LoaderInfo:
    """Finds a loader and binds it, once; later calls answer the same. Raises `LoaderNotFound`."""
    global _bound
    if _bound is not None:
        return _bound
    with _lock:
        if _bound is None:
            if wanted := software_drivers_wanted():
                add_software_drivers(*wanted)
            library, source, reason = _find()
            functions = lib.l0_bind(library)
            _bound = LoaderInfo(_path(library), source, reason, functions)
    return _bound


def _find() -> tuple[int, str, str]:
    """The library to bind (an opened one), where it came from, and why."""
    override = os.environ.get("L0PY_LOADER")
    if override:
        library = lib.l0_library_open(os.fsencode(override), False)
        if not library:
            raise LoaderNotFound(f"L0PY_LOADER={override}: {_error()}")
        _require_level_zero(library, override)
        return library, "override", "L0PY_LOADER names it"
    library = lib.l0_library_open(SONAME.encode(), True)
    if library:
        return library, "process", "it was already loaded in this process"
    library = lib.l0_library_open(SONAME.encode(), False)
    reason = "no loader is installed"
    if library:
        if lib.l0_library_symbol(library, _OPENVINO_NEEDS):
            return library, "system", "the system's loader has what OpenVINO needs"
        reason = f"the system's {_path(library)} is too old for OpenVINO: it lacks {_OPENVINO_NEEDS.decode()} (1.10)"
        lib.l0_library_close(library)
    embedded = embedded_path()
    library = lib.l0_library_open(os.fsencode(embedded), False)
    if not library:
        raise LoaderNotFound(f"{reason}, and the embedded one cannot be opened: {_error()}")
    return library, "embedded", reason


def _require_level_zero(library: int, path: str) -> None:
    if not lib.l0_library_symbol(library, b"zeInit"):
        lib.l0_library_close(library)
        raise LoaderNotFound(f"{path} is no Level Zero loader: it has no zeInit")


def driver_problem(path: str) -> str:
    """What makes loaders pass over a driver's library, which they do in silence; empty when nothing does."""
    library = lib.l0_library_open(os.fsencode(path), False)  # not closed: drivers do not take that well
    if not library:
        return _error()
    return "" if lib.l0_library_symbol(library, b"zeGetGlobalProcAddrTable") else "it is no Level Zero driver"


def _error() -> str:
    return str(ffi.string(lib.l0_library_error()).decode(errors="replace"))


def _path(library: int) -> str:
    buffer = ffi.new("char[4096]")
    if not lib.l0_library_path(library, buffer, 4096):
        return ""
    return os.fsdecode(ffi.string(buffer))


def _version() -> str:
    bind()
    component = ffi.new("zel_component_version_t*")
    if lib.l0_has(b"zelGetLoaderVersion") == 1 and lib.zelGetLoaderVersion(component) == 0:
        return _version_text(component)
    count = ffi.new("size_t*")
    if lib.l0_has(b"zelLoaderGetVersions") != 1 or lib.zelLoaderGetVersions(count, ffi.NULL) != 0 or count[0] == 0:
        return "unknown"
    components = ffi.new("zel_component_version_t[]", count[0])
    if lib.zelLoaderGetVersions(count, components) != 0:
        return "unknown"
    for one in components:
        if ffi.string(one.component_name) == b"loader":
            return _version_text(one)
    return "unknown"


def _version_text(component: object) -> str:
    version = component.component_lib_version  # type: ignore[attr-defined]
    return f"{version.major}.{version.minor}.{version.patch}"


def missing_function(name: str) -> Callable[..., NoReturn]:
    """A stand-in for a function that the bound loader lacks: calling it raises `FunctionMissing`."""

    def raise_missing(*_arguments: object) -> NoReturn:
        loader = bind()
        since = SINCE[name]
        wanted = f"; specification {since[0]}.{since[1]} brought it" if since else ""
        raise FunctionMissing(f"{name} is not in the loader {loader.path} (version {loader.version}){wanted}")

    raise_missing.__name__ = name
    return raise_missing
