"""The raw layer: every entry point under its C name, one to one, results unchecked.

Handles and addresses are ints; structures are cffi's (`ffi.new("ze_context_desc_t*")`). `pNext` takes a structure's
pointer as it is. The first name that is asked for binds the loader (see `l0py.loader`); enumerators and numeric macros
need none. A function that the bound loader lacks raises `FunctionMissing` when it is called, never before.
"""

from __future__ import annotations

from typing import Any

from . import loader
from ._ffi import ffi
from ._ffi import lib as _lib
from ._functions import SINCE

__all__ = ["address", "ffi", "has"]


def address(data: Any) -> int:
    """Where a cffi pointer points, or a cffi array (of `ffi.from_buffer`, too) begins, as an int."""
    return int(ffi.cast("uintptr_t", data))


def has(name: str) -> bool:
    """Whether the bound loader exports the function; binds the loader. `AttributeError` for a name it cannot know."""
    if name not in SINCE:
        raise AttributeError(f"Level Zero has no function {name!r}")
    loader.bind()
    return bool(_lib.l0_has(name.encode()) == 1)


def __getattr__(name: str) -> Any:
    if name not in SINCE:
        value = getattr(_lib, name)  # an enumerator or a macro; AttributeError for anything else
    elif has(name):
        value = getattr(_lib, name)
    else:
        value = loader.missing_function(name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_lib)})
