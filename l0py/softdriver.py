"""The software drivers: switched on before the first use of Level Zero, then told to fail, limited and questioned.

There is one for an NPU and one for a GPU without kernels, libraries that the loader opens like any other driver; each
function here takes the `driver` that it is about. `L0PY_SOFTDRIVER` in the environment switches them on as well: `1`
the NPU's, `npu,gpu` both; `0` forbids them.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

from . import loader
from ._enums import ze_result_t
from ._ffi import ffi
from ._ffi import lib as _c
from .driver import Driver, drivers
from .errors import Error, InvalidArgument, OutOfMemory, check

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "clear_faults",
    "enable",
    "executions",
    "imitate",
    "inject",
    "loader_path",
    "memory_limit",
    "path",
    "record",
    "record_calls",
    "reset_record",
]

_RESULTS = {name: number for number, name in ze_result_t.items()}
_RECORD_CALLS = 1


def path(driver: str = "npu") -> Path:
    """A driver's library: what `ZE_ENABLE_ALT_DRIVERS` names. Raises `InvalidArgument`."""
    return loader.software_driver_path(driver)


def loader_path() -> Path:
    """The embedded loader's library."""
    return loader.embedded_path()


def enable(*wanted: str) -> Driver:
    """Makes them the drivers of this process, for every user of Level Zero in it, and returns the first one's `Driver`.

    `wanted` are `"npu"` and `"gpu"`; none means the NPU's. Must come before anything else initialises Level Zero.
    Raises `Error` when it comes too late or `L0PY_SOFTDRIVER=0` forbids it, `InvalidArgument` for what is no software
    driver. Sets `ZE_ENABLE_ALT_DRIVERS` and initialises.
    """
    wanted = wanted or ("npu",)
    if loader.software_drivers_wanted() == ():
        raise Error("L0PY_SOFTDRIVER=0 in the environment forbids the software driver")
    before = os.environ.get("ZE_ENABLE_ALT_DRIVERS")
    loader.add_software_drivers(*wanted)
    there = {driver.kind: driver for driver in drivers() if driver.is_software}
    if there.keys() >= set(wanted):
        return there[wanted[0]]
    if before is None:
        del os.environ["ZE_ENABLE_ALT_DRIVERS"]
    else:
        os.environ["ZE_ENABLE_ALT_DRIVERS"] = before
    raise Error(
        "too late for the software driver: Level Zero is already initialised in this process with other drivers. "
        f"Call l0py.softdriver.enable() before anything uses them, or set {_variable(wanted)} in the environment"
    )


def _variable(wanted: tuple[str, ...]) -> str:
    return f"L0PY_SOFTDRIVER={'1' if wanted == ('npu',) else ','.join(wanted)}"


def imitate(release: str, *, driver: str = "gpu") -> None:
    """Behaves from now on as that release of Intel's driver does: who closes an fd, which imports are ignored, ...

    Contexts that are open stay with what they found the driver to do, and no driver changes under a program: close them
    before.

    The GPU's knows `"22.43"`, `"26.13"` and `"26.14"` (as it starts, unless `L0PY_SOFTGPU_RELEASE` names another one),
    the NPU's `"1.32.1"` alone. Raises `InvalidArgument`.
    """
    if _call(driver, "l0sd_imitate", "int(*)(const char*)", release.encode()) != 0:
        raise InvalidArgument(f"the software driver for the {driver} imitates no release {release!r}")


def inject(
    function: str,
    after: int = 0,
    result: int | str = "ZE_RESULT_ERROR_UNKNOWN",
    count: int = 1,
    *,
    driver: str = "npu",
) -> None:
    """Makes calls of a function of the API fail: `count` of them (0: all), after `after` more that work.

    `result` is a `ze_result_t` or its name. Raises `InvalidArgument` for a name that does not exist.
    """
    number = _RESULTS.get(result) if isinstance(result, str) else result
    if number is None or number not in ze_result_t:
        raise InvalidArgument(f"{result!r} is no ze_result_t")
    if not (0 <= after < 1 << 63 and 0 <= count < 1 << 63):
        raise InvalidArgument(f"after={after}, count={count}: how many calls are numbers from 0 on")
    kind = "int(*)(const char*, uint64_t, int, uint64_t)"
    if _call(driver, "l0sd_inject", kind, function.encode(), after, number, count) != 0:
        raise InvalidArgument(f"Level Zero has no function {function!r}")


def clear_faults(*, driver: str = "npu") -> None:
    """Takes back all that `inject` ordered."""
    _call(driver, "l0sd_clear_faults", "void(*)(void)")


def memory_limit(size: int | None, *, driver: str = "npu") -> None:
    """The most bytes that all allocations together may have, at least one; None lifts the limit."""
    if size is not None and not 0 < size < 1 << 64:
        raise InvalidArgument(f"a limit of {size} bytes: it must be positive, or None to lift it")
    check(_call(driver, "l0sd_memory_limit", "int(*)(uint64_t)", size or 0), "l0sd_memory_limit")


def record_calls(on: bool = True, *, driver: str = "npu") -> None:
    """Switches the recording of calls on or off; graph executions are always recorded."""
    if on:
        check(_call(driver, "l0sd_record_start", "int(*)(uint32_t)", _RECORD_CALLS), "l0sd_record_start")
    else:
        _call(driver, "l0sd_record_stop", "void(*)(void)")


def reset_record(*, driver: str = "npu") -> None:
    """Forgets what was recorded; the memory's peak starts anew."""
    _call(driver, "l0sd_record_reset", "void(*)(void)")


def record(*, driver: str = "npu") -> dict[str, Any]:
    """What a driver did.

    `calls`: by function, `count` and `failures`; `trace`: the last calls with their arguments; `executed` and
    `executions`: see `executions()`; `dropped`: entries for which there was no memory; `objects`: live ones by type;
    `memory`: bytes `now`, `peak`, `limit`, and live `blocks`, `imported_fds`, `imported_pages`, and `mappings` of
    virtual memory. Raises `OutOfMemory`.
    """
    import json

    kind, size = "size_t(*)(char*, size_t)", 4096
    while True:
        buffer = ffi.new("char[]", size)
        needed = _call(driver, "l0sd_record_json", kind, buffer, size)
        if needed == 0:
            raise OutOfMemory("there is no host memory for the record")
        if needed <= size:
            return dict(json.loads(ffi.string(buffer)))
        size = needed + 4096  # it may have grown meanwhile


def executions(*, driver: str = "npu") -> list[dict[str, Any]]:
    """The last graph executions, oldest first.

    Each has its `number`, its `graph`, its `arguments`' addresses in the graph's order, and the ids of the `memory`
    that these lie in (as `Context.alloc_properties` tells them): addresses are used again, ids and numbers are not.
    """
    return list(record(driver=driver)["executions"])


@cache
def _function(driver: str, name: str, kind: str) -> Any:
    library = _c.l0_library_open(os.fsencode(path(driver)), False)
    address = library and _c.l0_library_symbol(library, name.encode())
    if not address:
        raise Error(f"{path(driver)} is not the software driver of this l0py: it has no {name}")
    return ffi.cast(kind, address)


def _call(driver: str, name: str, kind: str, *arguments: object) -> Any:
    return _function(driver, name, kind)(*arguments)
