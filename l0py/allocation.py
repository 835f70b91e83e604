"""What is asked of an allocation: descriptors, made once for each set of flags and kind of export."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from . import external, lib
from ._ffi import ffi
from .errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .handles import CData

__all__: list[str] = []

HOST_FLAGS = {
    "cached": lib.ZE_HOST_MEM_ALLOC_FLAG_BIAS_CACHED,
    "uncached": lib.ZE_HOST_MEM_ALLOC_FLAG_BIAS_UNCACHED,
    "write_combined": lib.ZE_HOST_MEM_ALLOC_FLAG_BIAS_WRITE_COMBINED,
    "initial_placement": lib.ZE_HOST_MEM_ALLOC_FLAG_BIAS_INITIAL_PLACEMENT,
    "read_only": lib.ZE_HOST_MEM_ALLOC_FLAG_MEM_READ_ONLY,
}
_DEVICE_FLAGS = {
    "cached": lib.ZE_DEVICE_MEM_ALLOC_FLAG_BIAS_CACHED,
    "uncached": lib.ZE_DEVICE_MEM_ALLOC_FLAG_BIAS_UNCACHED,
    "initial_placement": lib.ZE_DEVICE_MEM_ALLOC_FLAG_BIAS_INITIAL_PLACEMENT,
}


class Desc(NamedTuple):
    """A descriptor, and what its pNext points to: it would not keep that alive itself."""

    desc: CData
    export: str
    chained: CData


def names(flags: Iterable[str]) -> tuple[str, ...]:
    """Flags in a form that can be looked up."""
    return (flags,) if isinstance(flags, str) else tuple(flags)


def bits(flags: tuple[str, ...], known: dict[str, int]) -> int:
    """Flags as the driver takes them. Raises `InvalidArgument`."""
    unknown = [flag for flag in flags if flag not in known]
    if unknown:
        raise InvalidArgument(f"unknown flag {unknown[0]!r}: there are {', '.join(known)}")
    return sum({known[flag] for flag in flags})


@lru_cache(maxsize=64)
def host_desc(flags: tuple[str, ...], export: str) -> Desc:
    """For zeMemAllocHost. Raises `InvalidArgument`."""
    desc = ffi.new("ze_host_mem_alloc_desc_t*", {"stype": lib.ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC})
    return _finished(desc, bits(flags, HOST_FLAGS), export)


@lru_cache(maxsize=64)
def device_desc(flags: tuple[str, ...], export: str) -> Desc:
    """For zeMemAllocDevice and zeMemAllocShared. Raises `InvalidArgument`."""
    desc = ffi.new("ze_device_mem_alloc_desc_t*", {"stype": lib.ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC})
    return _finished(desc, bits(flags, _DEVICE_FLAGS), export)


def _finished(desc: CData, flags: int, export: str) -> Desc:
    chained = external.export_desc(export) if export else ffi.NULL
    desc.flags, desc.pNext = flags, chained
    return Desc(desc, export, chained)


PLAIN_HOST = host_desc((), "")
