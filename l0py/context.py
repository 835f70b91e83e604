"""Contexts: the one factory of memory and of what works on it."""

from __future__ import annotations

import mmap
import operator
import threading
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, SupportsIndex

from . import external, imports, interop, ipc, lib
from ._ffi import ffi
from ._ffi import lib as _c
from .allocation import HOST_FLAGS, PLAIN_HOST, bits, device_desc, host_desc, names
from .commands import Transfers
from .device import Device
from .dmabuf import Fd
from .driver import Driver
from .errors import Error, InvalidArgument, NotSupported, OutOfMemory, check, from_result
from .handles import CData, Handle, borrow, collected, create, discard
from .image import Image, make_image
from .memory import MEMORY_TYPES, AllocationProperties, Memory, make
from .physical_memory import PhysicalMemory, VirtualRange, import_physical, make_physical, page_size, reserve

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Buffer

    from .external import HasFileno, HasHandle
    from .ipc import IpcHandle

__all__ = ["Context"]

_alloc_host = _c.l0_alloc_host
_new_box = _c.l0_box_new
_MEMORY: int = _c.L0_MEMORY


class Context(Handle):
    """A context of a driver: `Context(device)` or `Context(driver)`; allocates and imports memory.

    Given a device, that is the one meant where a call names none; else the driver's first. A context manager. Calls
    zeContextCreate, and zeContextDestroy when it and all its memory are closed. `driver` and `device` are what it was
    made for.
    """

    __slots__ = ("_limit", "_lock", "_policies", "_transfer", "device", "driver")

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
        self._policies: dict[int, external.Policy] = {}

    def alloc_host(
        self,
        size: SupportsIndex,
        *,
        alignment: SupportsIndex = 0,
        flags: Iterable[str] = (),
        exportable: bool | str = False,
    ) -> Memory:
        """Memory that the host and all devices see.

        `exportable=True` lets `Memory.export` give it out, as a dma-buf wherever there are any, and OpenVINO import it
        by its fd; a string names the kind of OS handle (see `Device.external_memory`). `alignment` in bytes is 0 (the
        driver's own) or a power of two; `flags` are `"cached"`, `"uncached"`, `"write_combined"`,
        `"initial_placement"`, `"read_only"` (for the device). Raises `InvalidArgument`, `OutOfMemory`, `NotSupported`,
        `Closed`. Calls zeMemAllocHost.
        """
        size = operator.index(size)
        alignment = operator.index(alignment)
        if not 0 < size <= self._limit or alignment & (alignment - 1) or not 0 <= alignment < 1 << 64:
            self._refuse(size, alignment)
        if flags or exportable:
            desc, export, _ = host_desc(names(flags), self._export_kind(exportable, self.device, "host"))
        else:
            desc, export, _ = PLAIN_HOST
        box = collected(_new_box(_MEMORY, self._box))
        _alloc_host(box, self._box, desc, size, alignment)
        if box.result or (alignment and box.handle % alignment):
            self._raise_failed(box, "zeMemAllocHost", size, alignment)
        return make(self, box, size, "host", None, export, "allocated")

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
        desc, export, _ = device_desc(names(flags), self._export_kind(exportable, where, "device"))
        box = collected(_new_box(_MEMORY, self._box))
        _c.l0_alloc_device(box, self._box, desc, size, alignment, where.handle)
        if box.result or (alignment and box.handle % alignment):
            self._raise_failed(box, "zeMemAllocDevice", size, alignment)
        return make(self, box, size, "device", where, export, "allocated")

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
        desc, *_ = device_desc(names(flags), "")
        box = collected(_new_box(_MEMORY, self._box))
        _c.l0_alloc_shared(box, self._box, desc, PLAIN_HOST.desc, size, alignment, where.handle)
        if box.result or (alignment and box.handle % alignment):
            self._raise_failed(box, "zeMemAllocShared", size, alignment)
        return make(self, box, size, "shared", where, "", "allocated")

    def import_dma_buf(
        self,
        fd: HasFileno | SupportsIndex,
        size: SupportsIndex | None = None,
        *,
        kind: str = "host",
        device: Device | None = None,
        read_only: bool = False,
    ) -> Memory:
        """`import_fd` for a dma-buf."""
        return self.import_fd(fd, size, kind=kind, device=device, read_only=read_only)

    def import_fd(
        self,
        fd: HasFileno | SupportsIndex,
        size: SupportsIndex | None = None,
        *,
        type: str = "dma_buf",  # noqa: A002 - the specification's name for it
        kind: str = "host",
        device: Device | None = None,
        read_only: bool = False,
    ) -> Memory:
        """Memory behind a descriptor (an int, or anything with `fileno()`), without a copy.

        `size` in bytes is all of it by default. `type` is what the descriptor was exported as, `"dma_buf"` or
        `"opaque_fd"`; `kind` is `"host"`, `"device"` or `"shared"`. The descriptor stays the caller's and may be closed
        at once; the memory is the context's until `close()`, keeps a duplicate, and can be exported again. A file that
        is truncated afterwards ends accesses with SIGBUS, as with any mapping: seal memfds with F_SEAL_SHRINK. Raises
        `BadDescriptor` (an `OSError`), `InvalidArgument`, `NotSupported`, `OutOfMemory`, `Closed`. Calls
        zeMemAllocHost, zeMemAllocDevice or zeMemAllocShared, and zeMemGetAddressRange.
        """
        _require_kind(kind)
        if type not in external.FD_KINDS:
            raise InvalidArgument(f"type {type!r} is none of {', '.join(map(repr, external.FD_KINDS))}")
        where = self._device(device)
        number = external.descriptor(fd)
        wanted = external.import_size(number, size)
        flags = self._read_only_flags(where) if read_only else 0
        source = Fd.duplicate(number)
        try:
            box = imports.import_fd(self, where, number, wanted, type, kind, flags)
        except BaseException:
            source.close()
            raise
        shown = None if kind == "host" else where
        return make(self, box, wanted, kind, shown, type, type, read_only=read_only, source=source)

    def import_win32(
        self,
        handle: HasHandle | SupportsIndex | None,
        size: SupportsIndex,
        *,
        type: str | None = None,  # noqa: A002 - the specification's name for it
        name: str | None = None,
        kind: str = "device",
        device: Device | None = None,
    ) -> Memory:
        """Memory behind a Windows handle (an int, a ctypes HANDLE, a `ntwin.NtHandle` or `KmtHandle`), without a copy.

        `size` is in bytes. `type` is what the handle is of, which it may know itself: `"opaque_win32"` (an NT handle of
        Level Zero, Vulkan or a section), `"opaque_win32_kmt"`, `"d3d11_texture"`, `"d3d11_texture_kmt"`,
        `"d3d12_heap"`, `"d3d12_resource"`. An NT handle may be given by its `name` instead. The handle stays the
        caller's and may be closed at once. Raises `InvalidArgument`, `NotSupported`, `OutOfMemory`, `Closed`. Calls as
        `import_fd`. Not run with a Windows driver.
        """
        _require_kind(kind)
        number, external_kind = imports.win32_handle(handle, type, name)
        wanted, where = operator.index(size), self._device(device)
        self._refuse(wanted, 0)
        box = imports.import_win32(self, where, number, name, wanted, external_kind, kind)
        return make(self, box, wanted, kind, None if kind == "host" else where, "", external_kind)

    def import_pointer(
        self, address: SupportsIndex, size: SupportsIndex, *, owner: object = None, read_only: bool = False
    ) -> Memory:
        """The process's own pages as memory of the context, without a copy: `address` stays what it is.

        Both numbers must be multiples of the page size. `owner` lives as long as the memory. Raises `InvalidArgument`,
        `NotSupported`, `Closed`. Calls zeMemAllocHost with `ze_external_memmap_sysmem_ext_desc_t`.
        """
        where, start, length = self._device(None), operator.index(address), operator.index(size)
        flags = self._read_only_flags(where) if read_only else 0
        box = imports.import_pages(self, where, start, length, flags)
        if owner is not None:
            _c.l0_box_keep(box, id(owner))
        return make(self, box, length, "host", None, "", "pointer", read_only=read_only)

    def import_buffer(self, buffer: Buffer, *, read_only: bool = False) -> Memory:
        """`import_pointer` for an object with the buffer protocol (a numpy array, an mmap), which it keeps alive.

        A buffer that may not be written needs `read_only=True`; `InvalidArgument` says so.
        """
        try:
            data = ffi.from_buffer(buffer, require_writable=not read_only)
        except (BufferError, ValueError) as error:  # NumPy says ValueError
            what = type(buffer).__name__
            raise InvalidArgument(
                f"{what} cannot be imported: {str(error).rstrip('.')}; read_only=True may do"
            ) from None
        try:
            return self.import_pointer(lib.address(data), len(data), owner=data, read_only=read_only)
        except BaseException:
            ffi.release(data)  # at once: the buffer's owner cannot be closed before
            raise

    def import_array(self, obj: Any, *, read_only: bool | None = None) -> Memory:
        """Another library's array as memory of the context, without a copy; all its bytes, which it keeps alive.

        `obj` is whatever `interop.describe` knows; it must be C-contiguous, and begin and end on whole pages unless it
        is memory of this very context. `read_only` is as `obj` says by default. Raises `InvalidArgument`,
        `NotSupported`, `Closed`, TypeError, and what `obj` itself raises. Calls as `import_pointer`.
        """
        foreign = interop.describe(obj)
        try:
            return self._import_foreign(foreign, foreign.read_only if read_only is None else read_only)
        except BaseException:
            foreign.release()  # at once, as in import_buffer
            raise

    def _import_foreign(self, foreign: interop.Foreign, read_only: bool) -> Memory:
        address, size, owner = foreign.address, foreign.size, foreign.owner
        if foreign.read_only and not read_only:
            raise InvalidArgument("the array may not be written: read_only=True imports it so")
        if foreign.strides is not None:
            raise InvalidArgument(f"an array of strides {foreign.strides} has gaps: import a C-contiguous one")
        if foreign.context == self.handle:
            known = self.alloc_properties(address)
            kind = known.type if known.type in ("device", "shared") else "host"
            there = (device for device in self.driver.devices() if device.handle == known.device)
            where = None if kind == "host" else next(there, self.device)  # NPU drivers do not tell
            return make(self, borrow(address, self, owner), size, kind, where, "", "borrowed", read_only=read_only)
        if foreign.host_visible is False:
            raise NotSupported("the host may not touch that memory, so it has no pages: export it as a dma-buf")
        page = mmap.PAGESIZE
        if address % page or size % page or not size:
            raise InvalidArgument(
                f"{size} bytes at {address:#x} are not whole pages of {page} bytes, as an import needs: allocate them "
                "by mmap.mmap(-1, size), or make the array from alloc_host(size).numpy(dtype, shape) and import nothing"
            )
        return self.import_pointer(address, size, owner=owner, read_only=read_only)

    def open_ipc(
        self,
        handle: IpcHandle | Buffer,
        device: Device | None = None,
        *,
        size: SupportsIndex | None = None,
        flags: Iterable[str] = (),
    ) -> Memory:
        """The memory that another process shared by an IPC handle, or by its 64 bytes; each call at a new address.

        `size` in bytes is the handle's by default, or what the driver tells; `flags` are `"cached"`, `"uncached"`. It
        lives on when its exporter frees it or ends. Raises `InvalidArgument` for a handle that means nothing (any
        more), `NotSupported`, `Closed`. Calls zeMemOpenIpcHandle, and zeMemCloseIpcHandle, never zeMemFree.
        """
        where = self._device(device)
        given = handle if isinstance(handle, ipc.IpcHandle) else ipc.IpcHandle(handle)
        box = ipc.open_memory(self, where, given, bits(names(flags), ipc.FLAGS))
        try:
            base, there = self.address_range(box.handle)  # which may begin before: small memory lies in a pool
            there, kind = base + there - box.handle, self.alloc_properties(box.handle).type
            wanted = (given.size or there) if size is None else operator.index(size)
            if not 0 < wanted <= there:
                raise InvalidArgument(f"the IPC handle's memory has {there} bytes, not the {wanted} asked for")
        except BaseException:
            discard(box)
            raise
        if kind not in ("host", "shared"):
            kind = "device"
        memory = make(self, box, wanted, kind, None if kind == "host" else where, "", "ipc")
        memory._native_kind = _c.L0_IPC_MEMORY
        return memory

    def create_image(
        self,
        width: SupportsIndex,
        height: SupportsIndex = 1,
        depth: SupportsIndex = 1,
        *,
        type: str = "2d",  # noqa: A002 - the specification's name for it
        layout: str = "8_8_8_8",
        format: str = "unorm",  # noqa: A002
        swizzle: str = "rgba",
        array_levels: SupportsIndex = 0,
        flags: Iterable[str] = (),
        device: Device | None = None,
        exportable: bool | str = False,
        fd: HasFileno | SupportsIndex | None = None,
        fd_type: str = "dma_buf",
    ) -> Image:
        """An image, or with `fd` the image that another driver or process exported as such a descriptor.

        `type` is `"1d"`, `"2d"`, `"3d"`, `"1darray"`, `"2darray"` or `"buffer"`; `layout` a pixel's channels
        (`"8_8_8_8"`, `"nv12"`, ...), `format` `"uint"`, `"sint"`, `"unorm"`, `"snorm"` or `"float"`; `flags` are
        `"kernel_write"`, `"uncached"`. Raises `InvalidArgument`, `NotSupported` where the device has no images,
        `BadDescriptor`, `OutOfMemory`, `Closed`. Calls zeImageCreate.
        """
        extent = (operator.index(width), operator.index(height), operator.index(depth), operator.index(array_levels))
        pixels = (type, layout, format, swizzle)
        return make_image(self, self._device(device), extent, pixels, names(flags), exportable, fd, fd_type)

    def create_physical(
        self,
        size: SupportsIndex,
        device: Device | None = None,
        *,
        kind: str = "device",
        exportable: bool | str = False,
    ) -> PhysicalMemory:
        """Memory without an address, for `VirtualRange.map`; `size` is a multiple of `page_size()`.

        `kind` is `"device"` or `"host"`. Raises `InvalidArgument`, `NotSupported` where the device has none,
        `OutOfMemory`, `Closed`. Calls zePhysicalMemCreate.
        """
        return make_physical(self, self._device(device), operator.index(size), kind, exportable)

    def import_physical(
        self,
        fd: HasFileno | SupportsIndex,
        size: SupportsIndex | None = None,
        *,
        type: str = "dma_buf",  # noqa: A002 - the specification's name for it
        kind: str = "device",
        device: Device | None = None,
    ) -> PhysicalMemory:
        """Physical memory behind a descriptor; see `import_fd` and `create_physical`."""
        return import_physical(self, self._device(device), fd, size, type, kind)

    def reserve(self, size: SupportsIndex, start: SupportsIndex = 0) -> VirtualRange:
        """Virtual addresses without memory: `size` bytes, a multiple of `page_size()`; at `start` if the driver will.

        Raises `InvalidArgument`, `NotSupported`, `OutOfMemory`, `Closed`. Calls zeVirtualMemReserve.
        """
        wanted = operator.index(size)
        if not 0 < wanted < 1 << 64:
            raise InvalidArgument(f"cannot reserve {wanted} bytes")
        return reserve(self, wanted, _address(start))

    def page_size(self, size: SupportsIndex, device: Device | None = None) -> int:
        """Bytes that mappings and physical memory of about `size` bytes are multiples of.

        Calls zeVirtualMemQueryPageSize. Raises `NotSupported`.
        """
        return page_size(self, self._device(device), operator.index(size))

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

    def __ze_context__(self) -> tuple[int, int]:
        return 1, self.handle

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

    def _export_kind(self, exportable: bool | str, device: Device | None, kind: str) -> str:
        """What `exportable=` asks for, if the driver has it."""
        if not exportable:
            return ""
        where = self._device(device)
        how = external.policy(self, where)
        chosen = external.export_kind(exportable, how.offered.exports)
        external.require_export(how, where, chosen, kind)
        return chosen

    def _read_only_flags(self, device: Device) -> int:
        """How the driver is told that the device only reads: NPU drivers knew it before the specification did."""
        flags = HOST_FLAGS["write_combined"] if device.type == "npu" else 0
        return flags | (HOST_FLAGS["read_only"] if self.driver.api_version >= (1, 16) else 0)

    def _refuse(self, size: int, alignment: int) -> None:
        """Raises for what no driver takes."""
        if not 0 <= alignment < 1 << 64 or alignment & (alignment - 1):
            raise InvalidArgument(f"alignment {alignment} is not a power of two")
        if size <= 0:
            raise InvalidArgument(f"cannot allocate {size} bytes: size must be positive")
        if size > self._limit:
            raise OutOfMemory(f"{size} bytes are more than one allocation can have: {self._limit} (maxMemAllocSize)")

    def _raise_failed(self, box: CData, function: str, size: int, alignment: int) -> None:
        result = box.result
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


def _require_kind(kind: str) -> None:
    if kind not in ("host", "device", "shared"):
        raise InvalidArgument(f"kind {kind!r} is none of 'host', 'device', 'shared'")
