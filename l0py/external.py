"""Memory in and out by OS handles: what drivers do differently, settled in one place.

Who closes a descriptor differs between drivers, and some answer SUCCESS to an import and hand out fresh memory. So the
driver only ever gets duplicates, and what it did is looked at afterwards.
"""

from __future__ import annotations

import errno
import fcntl
import operator
import os
import resource
import stat
import threading
from typing import TYPE_CHECKING, Any, SupportsIndex

from . import lib
from ._ffi import ffi
from ._ffi import lib as _c
from .device import EXTERNAL_KINDS
from .dmabuf import Fd, buffer_size
from .errors import BadDescriptor, Error, InvalidArgument, NotSupported, check, from_result
from .handles import CData, collected, discard

if TYPE_CHECKING:
    from typing import Protocol

    from .device import Device
    from .handles import Handle

    class HasFileno(Protocol):
        """Anything with a descriptor."""

        def fileno(self) -> int: ...


__all__: list[str] = []

_SYSMEM_EXTENSION = "ZE_extension_external_memmap_sysmem"
_DMA_BUF = EXTERNAL_KINDS["dma_buf"]

#: What drivers answer when a descriptor is no dma-buf.
_NO_DMA_BUF = (lib.ZE_RESULT_ERROR_INVALID_ARGUMENT, lib.ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)

_import_lock = threading.Lock()


def _after_fork_in_child() -> None:
    """Another thread of the parent may have had the lock, and is not here to release it."""
    global _import_lock
    _import_lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)

#: By driver: whether each export query makes a new descriptor, which the caller then owns.
_new_fd_each_query: dict[int, bool] = {}


def descriptor(fd: HasFileno | SupportsIndex) -> int:
    """The number of an open descriptor that may be a buffer. Raises `BadDescriptor`."""
    try:
        number = fd.fileno() if hasattr(fd, "fileno") else operator.index(fd)
    except ValueError as error:
        raise BadDescriptor(f"{fd!r} cannot be imported: {error}", errno=errno.EBADF) from None
    try:
        mode = os.fstat(number).st_mode
    except (OSError, OverflowError):
        raise BadDescriptor(f"file descriptor {number} is not open", errno=errno.EBADF) from None
    what = next((name for test, name in _NO_BUFFERS if test(mode)), None)
    if what:
        raise BadDescriptor(f"file descriptor {number} is {what}, not a buffer", errno=errno.EINVAL)
    return number


_NO_BUFFERS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


def import_size(fd: int, size: SupportsIndex | None) -> int:
    """How many bytes to import: all that the buffer has, unless fewer are asked for. Raises `InvalidArgument`."""
    there = buffer_size(fd)
    if there == 0:
        raise BadDescriptor(f"file descriptor {fd} has no bytes to import", errno=errno.EINVAL)
    if size is None:
        return there
    wanted = operator.index(size)
    if wanted <= 0:
        raise InvalidArgument(f"cannot import {wanted} bytes: size must be positive")
    if wanted > there:
        raise InvalidArgument(f"file descriptor {fd} has {there} bytes, fewer than the {wanted} asked for")
    return wanted


def import_fd(context: Handle, device: Device, fd: int, size: int, kind: str, flags: int) -> CData:
    """A box of memory made from a dma-buf; the descriptor stays the caller's.

    Calls zeMemAllocHost, zeMemAllocShared or zeMemAllocDevice with `ze_external_memory_import_fd_t`, then
    zeMemGetAddressRange. Raises `NotSupported`, `BadDescriptor`, `OutOfMemory`.
    """
    _require_import(device, kind)
    chained = ffi.new(
        "ze_external_memory_import_fd_t*",
        {"stype": lib.ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD, "flags": _DMA_BUF},
    )
    host = ffi.new("ze_host_mem_alloc_desc_t*", {"stype": lib.ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, "flags": flags})
    local = ffi.new("ze_device_mem_alloc_desc_t*", {"stype": lib.ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC})
    (host if kind == "host" else local).pNext = chained
    with _import_lock:
        duplicate = _high_duplicate(fd)
        file = os.fstat(duplicate)
        chained.fd = duplicate
        try:
            if kind == "host":
                box = _c.l0_alloc_host(context._box, host, size, 0)
            elif kind == "device":
                box = _c.l0_alloc_device(context._box, local, size, 0, device.handle)
            else:
                box = _c.l0_alloc_shared(context._box, local, host, size, 0, device.handle)
        finally:
            _close_if_still(duplicate, file)
    function = f"zeMemAlloc{kind.capitalize()}"
    box = collected(box)
    if box.result:
        raise _import_error(context, device, function, box.result, fd)
    try:
        _require_range(context, device, box.handle, size)
    except Error:
        discard(box)
        raise
    return box


def _require_import(device: Device, kind: str) -> None:
    """Refuses what a driver would answer with SUCCESS and fresh memory, or not at all."""
    if "dma_buf" not in device.external_memory.imports:
        raise NotSupported(f"{device.name} does not import dma-bufs (zeDeviceGetExternalMemoryProperties)")
    if kind == "host" and device.driver.api_version < (1, 5):
        raise NotSupported(f"{device.name}'s driver is too old to import host memory; kind='device' may work")
    if kind == "shared" and device.type != "npu":
        raise NotSupported(f"{device.name}'s driver would ignore an import as shared memory; use 'host' or 'device'")


def _high_duplicate(fd: int) -> int:
    """A duplicate with a high number, which nobody else gets meanwhile: the kernel hands out the lowest free ones.

    So it can be told, after the import, whether the driver has closed it.
    """
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    base = 768 if most == resource.RLIM_INFINITY else min(most, 1024) * 3 // 4
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, base)


def _close_if_still(duplicate: int, file: os.stat_result) -> None:
    """Closes the duplicate unless the driver did."""
    try:
        still = os.path.samestat(os.fstat(duplicate), file)
    except OSError:
        return
    if still:
        os.close(duplicate)


def _import_error(context: Handle, device: Device, function: str, result: int, fd: int) -> Exception:
    context.require_open()
    error = from_result(result, function, driver=device.driver.handle, here=f"importing file descriptor {fd}")
    link = _what_is(fd)
    if result not in _NO_DMA_BUF or "dmabuf" in link:
        return error
    text = f"{error} ({link} is no dma-buf, and many drivers import nothing else)"
    return BadDescriptor(text, errno=errno.EINVAL, result=result, function=function, description=error.description)


def _what_is(fd: int) -> str:
    from pathlib import Path

    try:
        return str(Path(f"/proc/self/fd/{fd}").readlink())
    except OSError:
        return "it"


def _require_range(context: Handle, device: Device, address: int, size: int) -> None:
    """Drivers ignore the size asked for: a mapping that is too short would end in SIGBUS."""
    base, length = ffi.new("uintptr_t*"), ffi.new("size_t*")
    result = lib.zeMemGetAddressRange(context.handle, address, base, length)
    check(result, "zeMemGetAddressRange", driver=device.driver.handle)
    if length[0] < size:
        raise NotSupported(f"{device.name}'s driver mapped {length[0]} of the {size} bytes that were to be imported")


def import_pages(context: Handle, device: Device, address: int, size: int, flags: int) -> CData:
    """A box of memory made from the process's own pages, which stay where they are.

    Calls zeMemAllocHost with `ze_external_memmap_sysmem_ext_desc_t`. Raises `InvalidArgument`, `NotSupported`.
    """
    page = os.sysconf("SC_PAGESIZE")
    if address <= 0 or size <= 0 or address + size >= 1 << 64 or address % page or size % page:
        raise InvalidArgument(
            f"{size} bytes at {address:#x} cannot be imported: address and size must be positive multiples of {page}"
        )
    if _SYSMEM_EXTENSION not in device.driver.extensions:
        raise NotSupported(f"{device.name}'s driver cannot import host pages: it lacks {_SYSMEM_EXTENSION}")
    chained = ffi.new(
        "ze_external_memmap_sysmem_ext_desc_t*",
        {"stype": lib.ZE_STRUCTURE_TYPE_EXTERNAL_MEMMAP_SYSMEM_EXT_DESC, "pSystemMemory": address, "size": size},
    )
    desc = ffi.new(
        "ze_host_mem_alloc_desc_t*",
        {"stype": lib.ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, "flags": flags, "pNext": chained},
    )
    box = collected(_c.l0_alloc_host(context._box, desc, size, 0))
    if box.result:
        context.require_open()
        here = f"importing {size} bytes at {address:#x}"
        raise from_result(box.result, "zeMemAllocHost", driver=device.driver.handle, here=here)
    if box.handle != address:
        discard(box)
        raise NotSupported(f"{device.name}'s driver did not import the pages: it made new memory and said SUCCESS")
    return box


def export_fd(memory: Handle, size: int, context: Handle, driver: int, kind: str) -> Fd:
    """The memory's descriptor of that kind, owned by the caller.

    Some drivers make a new one for each query, which is the caller's; others answer with one that they keep. Asking
    twice tells: the same number can only be a kept one. (Should the second query fail, the first one's descriptor stays
    open: closing a kept one would be worse.) Calls zeMemGetAllocProperties with
    `ze_external_memory_export_fd_t`. Raises `NotSupported`.
    """
    with memory.held() as address:
        number = _query_fd(context.handle, address, driver, kind)
        if driver not in _new_fd_each_query:
            again = _query_fd(context.handle, address, driver, kind)
            _new_fd_each_query[driver] = again != number
            if again != number:
                os.close(again)
        exported = Fd(number) if _new_fd_each_query[driver] else Fd.duplicate(number)
    if exported.size < size:
        found = repr(exported)
        exported.close()
        raise NotSupported(f"zeMemGetAllocProperties answered ZE_RESULT_SUCCESS with {found}, which is not the memory")
    return exported


def _query_fd(context: int, address: int, driver: int, kind: str) -> int:
    chained = ffi.new(
        "ze_external_memory_export_fd_t*",
        {"stype": lib.ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD, "flags": EXTERNAL_KINDS[kind], "fd": -1},
    )
    properties = ffi.new(
        "ze_memory_allocation_properties_t*",
        {"stype": lib.ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES, "pNext": chained},
    )
    device = ffi.new("ze_device_handle_t*")
    result = lib.zeMemGetAllocProperties(context, address, properties, device)
    check(result, "zeMemGetAllocProperties", driver=driver, here=f"exporting the memory at {address:#x}")
    if chained.fd < 0:
        raise NotSupported("zeMemGetAllocProperties answered ZE_RESULT_SUCCESS and gave no file descriptor")
    return int(chained.fd)


def export_chain(kind: str) -> Any:
    """The structure that asks for memory that can be exported."""
    if kind not in ("dma_buf", "opaque_fd"):
        raise InvalidArgument(f"memory cannot be made exportable as {kind!r}; this system has 'dma_buf'")
    return ffi.new(
        "ze_external_memory_export_desc_t*",
        {"stype": lib.ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC, "flags": EXTERNAL_KINDS[kind]},
    )
