"""Allocations made from what is there already: a descriptor's memory, a Windows handle's, the process's own pages."""

from __future__ import annotations

import errno
import mmap
import operator
from typing import TYPE_CHECKING, SupportsIndex

from . import external, lib
from ._ffi import ffi
from ._ffi import lib as _c
from .device import EXTERNAL_KINDS
from .errors import BadDescriptor, Error, InvalidArgument, NotSupported, check, from_result
from .handles import CData, Handle, collected, discard

if TYPE_CHECKING:
    from collections.abc import Callable

    from .context import Context
    from .device import Device
    from .external import HasHandle

__all__: list[str] = []

_SYSMEM_EXTENSION = "ZE_extension_external_memmap_sysmem"

#: What drivers answer when a descriptor is no memory that they can import.
_NO_BUFFER = (lib.ZE_RESULT_ERROR_INVALID_ARGUMENT, lib.ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)


def import_fd(context: Context, device: Device, fd: int, size: int, external_kind: str, kind: str, flags: int) -> CData:
    """A box of memory made from a descriptor, which stays the caller's.

    Calls zeMemAllocHost, zeMemAllocShared or zeMemAllocDevice with `ze_external_memory_import_fd_t`, then
    zeMemGetAddressRange. Raises `NotSupported`, `BadDescriptor`, `OutOfMemory`.
    """
    how = external.policy(context, device)
    external.require_import(how, device, external_kind, kind)
    chained = external.import_fd_desc(external_kind)
    allocate = _allocation(context, device, size, kind, flags, chained)

    def call(lent: int) -> CData:
        chained.fd = lent
        return allocate()

    box = external.lend(fd, how.closes_imported, call)
    if box.result:
        raise _fd_error(context, device, kind, box.result, fd, external_kind)
    return _whole(context, device, box, size)


def win32_handle(
    handle: HasHandle | SupportsIndex | None, external_kind: str | None, name: str | None
) -> tuple[int, str]:
    """The number of a Windows handle (0 for one that is given by its name), and what it is of."""
    kind = external_kind or getattr(handle, "type", "opaque_win32")
    if kind not in external.WIN32_KINDS:
        raise InvalidArgument(f"type {kind!r} is none of {', '.join(map(repr, external.WIN32_KINDS))}")
    if (handle is None) == (name is None):
        raise InvalidArgument("a Windows handle is given either by itself or by its name")
    if handle is None:
        if kind.endswith("_kmt"):
            raise InvalidArgument(f"handles of type {kind} have no names")
        if not name or "\0" in name:
            raise InvalidArgument(f"{name!r} is no name of a Windows handle")
        return 0, kind
    given = handle.handle if hasattr(handle, "handle") else getattr(handle, "value", handle)  # ctypes has `value`
    number = operator.index(0 if given is None else given)  # so ctypes tells the null handle
    if not 0 < number < 1 << 64:
        raise InvalidArgument(f"{number:#x} is no Windows handle")
    return number, kind


def import_win32(
    context: Context, device: Device, handle: int, name: str | None, size: int, external_kind: str, kind: str
) -> CData:
    """A box of memory made from a Windows handle, or from the name that an NT handle was given; it stays the caller's.

    Calls as `import_fd`, with `ze_external_memory_import_win32_handle_t`. Raises `NotSupported`, `InvalidArgument`.
    """
    external.require_import(external.policy(context, device), device, external_kind, kind)
    text = ffi.NULL if name is None else ffi.new("char[]", f"{name}\0".encode("utf-16-le"))
    structure = lib.ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_WIN32
    chained = ffi.new(
        "ze_external_memory_import_win32_handle_t*",
        {"stype": structure, "flags": EXTERNAL_KINDS[external_kind], "handle": handle, "name": text},
    )
    box = _allocation(context, device, size, kind, 0, chained)()
    if box.result:
        context.require_open()
        here = f"importing the {external_kind} handle {handle:#x}" if name is None else f"importing {name!r}"
        raise from_result(box.result, _function(kind), driver=device.driver.handle, here=here)
    return _whole(context, device, box, size)


def _allocation(
    context: Handle, device: Device, size: int, kind: str, flags: int, chained: CData
) -> Callable[[], CData]:
    """The call that allocates memory of that kind with something chained to its descriptor."""
    host = ffi.new("ze_host_mem_alloc_desc_t*", {"stype": lib.ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, "flags": flags})
    local = ffi.new("ze_device_mem_alloc_desc_t*", {"stype": lib.ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC})
    (host if kind == "host" else local).pNext = chained

    def allocate() -> CData:
        box = collected(_c.l0_box_new(_c.L0_MEMORY, context._box))
        if kind == "host":
            _c.l0_alloc_host(box, context._box, host, size, 0)
        elif kind == "device":
            _c.l0_alloc_device(box, context._box, local, size, 0, device.handle)
        else:
            _c.l0_alloc_shared(box, context._box, local, host, size, 0, device.handle)
        return box

    return allocate


def _function(kind: str) -> str:
    return f"zeMemAlloc{kind.capitalize()}"


def _fd_error(context: Handle, device: Device, kind: str, result: int, fd: int, external_kind: str) -> Exception:
    context.require_open()
    function = _function(kind)
    error = from_result(result, function, driver=device.driver.handle, here=f"importing file descriptor {fd}")
    link = _what_is(fd)
    if result not in _NO_BUFFER or "dmabuf" in link:
        return error
    text = f"{link} is no {external_kind.replace('_', '-', 1)}, and many drivers import nothing else: {error}"
    return BadDescriptor(text, errno=errno.EINVAL, result=result, function=function, description=error.description)


def _what_is(fd: int) -> str:
    from pathlib import Path

    try:
        return str(Path(f"/proc/self/fd/{fd}").readlink())
    except OSError:
        return "it"


def _whole(context: Handle, device: Device, box: CData, size: int) -> CData:
    """The box, unless it is too short: drivers ignore the size asked for, and a short mapping would end in SIGBUS."""
    base, length = ffi.new("uintptr_t*"), ffi.new("size_t*")
    try:
        with context.held() as handle:
            result = lib.zeMemGetAddressRange(handle, box.handle, base, length)
        check(result, "zeMemGetAddressRange", driver=device.driver.handle)
        if length[0] < size:
            raise NotSupported(
                f"{device.name}'s driver mapped {length[0]} of the {size} bytes that were to be imported"
            )
    except Error:
        discard(box)
        raise
    return box


def import_pages(context: Handle, device: Device, address: int, size: int, flags: int) -> CData:
    """A box of memory made from the process's own pages, which stay where they are.

    Calls zeMemAllocHost with `ze_external_memmap_sysmem_ext_desc_t`. Raises `InvalidArgument`, `NotSupported`.
    """
    page = mmap.PAGESIZE
    if address <= 0 or size <= 0 or address + size >= 1 << 64 or address % page or size % page:
        raise InvalidArgument(
            f"{size} bytes at {address:#x} cannot be imported: address and size must be positive multiples of {page}, "
            "as those of mmap.mmap(-1, size) are; memory of alloc_host(size) needs no import"
        )
    if _SYSMEM_EXTENSION not in device.driver.extensions:
        raise NotSupported(f"{device.name}'s driver cannot import host pages: it lacks {_SYSMEM_EXTENSION}")
    chained = ffi.new(
        "ze_external_memmap_sysmem_ext_desc_t*",
        {"stype": lib.ZE_STRUCTURE_TYPE_EXTERNAL_MEMMAP_SYSMEM_EXT_DESC, "pSystemMemory": address, "size": size},
    )
    box = _allocation(context, device, size, "host", flags, chained)()
    if box.result:
        context.require_open()
        here = f"importing {size} bytes at {address:#x}"
        raise from_result(box.result, "zeMemAllocHost", driver=device.driver.handle, here=here)
    if box.handle != address:
        discard(box)
        raise NotSupported(f"{device.name}'s driver did not import the pages: it made new memory and said SUCCESS")
    return box
