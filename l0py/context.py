"""Contexts: the one factory of memory and of what works on it."""

from __future__ import annotations

import operator
import threading
from contextlib import ExitStack, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, SupportsIndex

from . import external, lib
from ._ffi import ffi
from ._ffi import lib as _c
from .commands import Transfers
from .device import Device
from .dmabuf import Fd
from .driver import Driver
from .errors import Error, InvalidArgument, NotSupported, OutOfMemory, check, from_result
from .handles import CData, Handle, borrow, collected, create, discard
from .memory import MEMORY_TYPES, AllocationProperties, Memory, make

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Buffer

    from .external import HasFileno

__all__ = ["Context"]

_HOST_FLAGS = {
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

_alloc_host = _c.l0_alloc_host
_drop = _c.l0_box_drop
_gc = ffi.gc


class Context(Handle):
    """A context of a driver: `Context(device)` or `Context(driver)`; allocates and imports memory.

    Given a device, that is the one meant where a call names none; else the driver's first. A context manager. Calls
    zeContextCreate, and zeContextDestroy when it and all its memory are closed. `driver` and `device` are what it was
    made for.
    """

    __slots__ = ("_limit", "_lock", "_transfer", "device", "driver")

    def __init__(self, where: Device | Driver) -> None:
        if not isinstance(where, (Device, Driver)):
            raise TypeError(f"a context is made for a Device or a Driver, not for {type(where).__name__}")
        driver = where if isinstance(where, Driver) else where.driver
        self._set_up(driver, where if isinstance(where, Device) else None)
        desc = ffi.new("ze_context_desc_t*", {"stype": lib.ZE_STRUCTURE_TYPE_CONTEXT_DESC})
        box = create(_c.L0_CONTEXT, None, "zeContextCreate", driver.handle, desc, driver=driver.handle)
        super().__init__(box, _c.L0_CONTEXT, driver.handle)

    @classmethod
    def from_handle(cls, handle: int, where: Device | Driver, *, owner: object = None) -> Context:
        """Somebody else's `ze_context_handle_t`: never destroyed here; `owner` lives as long as it and its memory."""
        context: Context = object.__new__(cls)
        driver = where if isinstance(where, Driver) else where.driver
        context._set_up(driver, where if isinstance(where, Device) else None)
        Handle.__init__(context, borrow(handle, None, owner), _c.L0_CONTEXT, driver.handle)
        return context

    def _set_up(self, driver: Driver, device: Device | None) -> None:
        devices = driver.devices()
        self.driver = driver
        self.device = device or (devices[0] if devices else None)
        self._limit = max((d.properties.max_alloc_size for d in devices), default=1 << 63)
        self._lock = threading.Lock()
        self._transfer: dict[int, Transfers] = {}

    def alloc_host(
        self,
        size: SupportsIndex,
        *,
        alignment: SupportsIndex = 0,
        flags: Iterable[str] = (),
        exportable: bool | str = False,
    ) -> Memory:
        """Memory that the host and all devices see.

        `exportable=True` lets `Memory.export` give it out as a dma-buf, and OpenVINO import it by its fd. `alignment`
        in bytes is 0 (the driver's own) or a power of two; `flags` are `"cached"`, `"uncached"`, `"write_combined"`,
        `"initial_placement"`, `"read_only"` (for the device). Raises `InvalidArgument`, `OutOfMemory`, `NotSupported`,
        `Closed`. Calls zeMemAllocHost.
        """
        size = operator.index(size)
        alignment = operator.index(alignment)
        if not 0 < size <= self._limit or alignment & (alignment - 1) or not 0 <= alignment < 1 << 64:
            self._refuse(size, alignment)
        desc, export, _ = _host_desc(*_options(flags, exportable)) if flags or exportable else _PLAIN_HOST
        box = _alloc_host(self._box, desc, size, alignment)
        if not box or box.result or (alignment and box.handle % alignment):
            self._raise_failed(box, "zeMemAllocHost", size, alignment)
        return make(self, _gc(box, _drop), size, "host", None, export, "allocated")

    def alloc_device(
        self,
        size: SupportsIndex,
        device: Device | None = None,
        *,
        alignment: SupportsIndex = 0,
        flags: Iterable[str] = (),
        exportable: bool | str = False,
    ) -> Memory:
        """Memory of a device, which the host may not touch.

        `flags` are `"cached"`, `"uncached"`, `"initial_placement"`; else as `alloc_host`. Calls zeMemAllocDevice.
        """
        size, alignment, where = operator.index(size), operator.index(alignment), self._device(device)
        self._refuse(size, alignment)
        desc, export, _ = _device_desc(*_options(flags, exportable))
        box = _c.l0_alloc_device(self._box, desc, size, alignment, where.handle)
        if not box or box.result or (alignment and box.handle % alignment):
            self._raise_failed(box, "zeMemAllocDevice", size, alignment)
        return make(self, _gc(box, _drop), size, "device", where, export, "allocated")

    def alloc_shared(
        self,
        size: SupportsIndex,
        device: Device | None = None,
        *,
        alignment: SupportsIndex = 0,
        flags: Iterable[str] = (),
    ) -> Memory:
        """Memory that the host and one device share and may move between them.

        `flags` and errors as for `alloc_device`. Not exportable: GPU drivers export no shared memory. Calls
        zeMemAllocShared.
        """
        size, alignment, where = operator.index(size), operator.index(alignment), self._device(device)
        self._refuse(size, alignment)
        desc, *_ = _device_desc(*_options(flags, False))
        box = _c.l0_alloc_shared(self._box, desc, _PLAIN_HOST.desc, size, alignment, where.handle)
        if not box or box.result or (alignment and box.handle % alignment):
            self._raise_failed(box, "zeMemAllocShared", size, alignment)
        return make(self, _gc(box, _drop), size, "shared", where, "", "allocated")

    def import_dma_buf(
        self,
        fd: HasFileno | SupportsIndex,
        size: SupportsIndex | None = None,
        *,
        kind: str = "host",
        device: Device | None = None,
        read_only: bool = False,
    ) -> Memory:
        """Memory behind a dma-buf's descriptor (an int, or anything with `fileno()`), without a copy.

        `size` in bytes is all of it by default. `kind` is `"host"`, `"device"` or `"shared"`. The descriptor stays the
        caller's and may be closed at once; the memory is the context's until `close()`, keeps a duplicate, and can be
        exported again. Raises `BadDescriptor` (an `OSError`), `InvalidArgument`, `NotSupported`, `OutOfMemory`,
        `Closed`. Calls zeMemAllocHost, zeMemAllocDevice or zeMemAllocShared, and zeMemGetAddressRange.
        """
        if kind not in ("host", "device", "shared"):
            raise InvalidArgument(f"kind {kind!r} is none of 'host', 'device', 'shared'")
        where = self._device(device)
        number = external.descriptor(fd)
        wanted = external.import_size(number, size)
        flags = self._read_only_flags(where) if read_only else 0
        source = Fd.duplicate(number)
        try:
            box = external.import_fd(self, where, number, wanted, kind, flags)
        except BaseException:
            source.close()
            raise
        shown = None if kind == "host" else where
        return make(self, box, wanted, kind, shown, "dma_buf", "dma_buf", read_only=read_only, source=source)

    def import_pointer(
        self, address: SupportsIndex, size: SupportsIndex, *, owner: object = None, read_only: bool = False
    ) -> Memory:
        """The process's own pages as memory of the context, without a copy: `address` stays what it is.

        Both numbers must be multiples of the page size. `owner` lives as long as the memory. Raises `InvalidArgument`,
        `NotSupported`, `Closed`. Calls zeMemAllocHost with `ze_external_memmap_sysmem_ext_desc_t`.
        """
        where, start, length = self._device(None), operator.index(address), operator.index(size)
        flags = self._read_only_flags(where) if read_only else 0
        box = external.import_pages(self, where, start, length, flags)
        if owner is not None:
            _c.l0_box_keep(box, id(owner))
        return make(self, box, length, "host", None, "", "pointer", read_only=read_only)

    def import_buffer(self, buffer: Buffer, *, read_only: bool = False) -> Memory:
        """`import_pointer` for an object with the buffer protocol (a numpy array, an mmap), which it keeps alive.

        A buffer that may not be written needs `read_only=True`; `InvalidArgument` says so.
        """
        try:
            data = ffi.from_buffer(buffer, require_writable=not read_only)
        except BufferError as error:
            what = type(buffer).__name__
            raise InvalidArgument(f"{what} cannot be imported: {error} read_only=True may do") from None
        try:
            return self.import_pointer(lib.address(data), len(data), owner=data, read_only=read_only)
        except BaseException:
            ffi.release(data)  # at once: the buffer's owner cannot be closed before
            raise

    def alloc_properties(self, address: SupportsIndex) -> AllocationProperties:
        """What the driver knows of an address; type `"unknown"` for memory that is not this context's.

        Calls zeMemGetAllocProperties.
        """
        number = _address(address)
        structure = lib.ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES
        out = ffi.new("ze_memory_allocation_properties_t*", {"stype": structure})
        device = ffi.new("ze_device_handle_t*")
        with self.held() as handle:
            result = lib.zeMemGetAllocProperties(handle, number, out, device)
        if result != lib.ZE_RESULT_ERROR_NOT_AVAILABLE:  # so NPU drivers say what others call "unknown"
            check(result, "zeMemGetAllocProperties", driver=self._driver_handle)
        return AllocationProperties(MEMORY_TYPES.get(out.type, f"type {out.type}"), out.id, out.pageSize, device[0])

    def address_range(self, address: SupportsIndex) -> tuple[int, int]:
        """Base and size in bytes of the allocation around an address. Raises `InvalidArgument` for foreign memory.

        NPU drivers tell the base as the device sees it. Calls zeMemGetAddressRange.
        """
        number = _address(address)
        base, size = ffi.new("uintptr_t*"), ffi.new("size_t*")
        with self.held() as handle:
            result = lib.zeMemGetAddressRange(handle, number, base, size)
        if result in (lib.ZE_RESULT_ERROR_NOT_AVAILABLE, lib.ZE_RESULT_ERROR_UNKNOWN):
            raise InvalidArgument(
                f"{number:#x} is no memory of this context", result=result, function="zeMemGetAddressRange"
            )
        check(result, "zeMemGetAddressRange", driver=self._driver_handle)
        return base[0], size[0]

    def close(self) -> None:
        """Closes it; once, later calls do nothing. Its memory can no longer be used, only closed.

        The native context goes with the last of its memory. Calls zeContextDestroy.
        """
        if _c.l0_box_state(self._box) == _c.L0_OTHER_PROCESS:  # another thread of the parent may have had the locks
            super().close()
            return
        with self._lock:
            transfers, self._transfer = self._transfer, {}
        with ExitStack() as every:
            every.callback(super().close)
            for one in transfers.values():
                every.callback(one.close)

    def _transfers(self, device: Device | None) -> Transfers:
        where = self._device(device)
        with self._lock:
            known = self._transfer.get(where.handle)
            if known is not None and known.failed:
                with suppress(Error):
                    known.close()
                known = None
            if known is None:
                known = self._transfer[where.handle] = Transfers(self, where)
            return known

    def _device(self, device: Device | None) -> Device:
        if device is None:
            device = self.device
        if device is None:
            raise NotSupported(f"{self.driver!r} has no device")
        if device.driver != self.driver:
            raise InvalidArgument(f"{device!r} belongs to another driver than the context")
        return device

    def _read_only_flags(self, device: Device) -> int:
        """How the driver is told that the device only reads: NPU drivers knew it before the specification did."""
        flags = _HOST_FLAGS["write_combined"] if device.type == "npu" else 0
        return flags | (_HOST_FLAGS["read_only"] if self.driver.api_version >= (1, 16) else 0)

    def _refuse(self, size: int, alignment: int) -> None:
        """Raises for what no driver takes."""
        if not 0 <= alignment < 1 << 64 or alignment & (alignment - 1):
            raise InvalidArgument(f"alignment {alignment} is not a power of two")
        if size <= 0:
            raise InvalidArgument(f"cannot allocate {size} bytes: size must be positive")
        if size > self._limit:
            raise OutOfMemory(f"{size} bytes are more than one allocation can have: {self._limit} (maxMemAllocSize)")

    def _raise_failed(self, box: CData, function: str, size: int, alignment: int) -> None:
        result = collected(box).result
        if not result:
            discard(box)
            raise NotSupported(f"{function} answered ZE_RESULT_SUCCESS with memory that is not aligned to {alignment}")
        self.require_open()
        raise from_result(result, function, driver=self._driver_handle, here=f"allocating {size} bytes")

    def _describe(self) -> str:
        return f"on {self.device.name!r}" if self.device else ""


def _address(address: SupportsIndex) -> int:
    number = operator.index(address)
    if not 0 <= number < 1 << 64:
        raise InvalidArgument(f"{number:#x} is no address")
    return number


def _options(flags: Iterable[str], exportable: bool | str) -> tuple[tuple[str, ...], str]:
    """Flags and export kind in a form that can be looked up."""
    if isinstance(flags, str):
        flags = (flags,)
    return tuple(flags), exportable if isinstance(exportable, str) else "dma_buf" if exportable else ""


def _bits(flags: tuple[str, ...], known: dict[str, int]) -> int:
    unknown = [flag for flag in flags if flag not in known]
    if unknown:
        raise InvalidArgument(f"unknown flag {unknown[0]!r}: there are {', '.join(known)}")
    return sum({known[flag] for flag in flags})


class _Desc(NamedTuple):
    """A descriptor, and what its pNext points to: it would not keep that alive itself."""

    desc: CData
    export: str
    chained: CData


@lru_cache(maxsize=64)
def _host_desc(flags: tuple[str, ...], export: str) -> _Desc:
    desc = ffi.new("ze_host_mem_alloc_desc_t*", {"stype": lib.ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC})
    return _finished(desc, _bits(flags, _HOST_FLAGS), export)


@lru_cache(maxsize=64)
def _device_desc(flags: tuple[str, ...], export: str) -> _Desc:
    desc = ffi.new("ze_device_mem_alloc_desc_t*", {"stype": lib.ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC})
    return _finished(desc, _bits(flags, _DEVICE_FLAGS), export)


def _finished(desc: CData, bits: int, export: str) -> _Desc:
    chained = external.export_chain(export) if export else ffi.NULL
    desc.flags, desc.pNext = bits, chained
    return _Desc(desc, export, chained)


_PLAIN_HOST = _host_desc((), "")
