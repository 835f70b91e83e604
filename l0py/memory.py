"""Memory: allocated, imported or borrowed; seen by Python without a copy where the host may look."""

from __future__ import annotations

import math
import operator
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

from . import dlpack, external, interop, ipc, lib
from ._ffi import ffi
from ._ffi import lib as _c
from .dmabuf import Fd
from .errors import InUse, InvalidArgument, NotSupported
from .handles import CData, Handle, borrow

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt
    from typing_extensions import Buffer

    from .context import Context
    from .device import Device
    from .external import Exported
    from .ipc import IpcHandle

__all__ = ["AllocationProperties", "Memory"]

MEMORY_TYPES = {
    lib.ZE_MEMORY_TYPE_UNKNOWN: "unknown",
    lib.ZE_MEMORY_TYPE_HOST: "host",
    lib.ZE_MEMORY_TYPE_DEVICE: "device",
    lib.ZE_MEMORY_TYPE_SHARED: "shared",
    lib.ZE_MEMORY_TYPE_HOST_IMPORTED: "host_imported",
}

_MEMORY = _c.L0_MEMORY
_NO_DLPACK = "DLPack has no device for device memory of Level Zero: copy it to host memory, or export it as a dma-buf"
_ZE_FLAGS = {"host": 0, "shared": interop.SHARED, "device": interop.DEVICE_ONLY}
_WRITABLE = 1  # inspect.BufferFlags.WRITABLE


class AllocationProperties(NamedTuple):
    """What the driver knows of an address.

    `type` is `"host"`, `"device"`, `"shared"`, `"host_imported"` or `"unknown"` (memory of others); `device` is a
    handle, 0 where the driver does not tell.
    """

    type: str
    id: int
    page_size: int
    device: int


class Memory(Handle):
    """Memory of a context; made by the context's `alloc_...` and `import_...`, or `from_handle`.

    `size` is in bytes, `kind` one of `"host"`, `"shared"`, `"device"`, `origin` one of `"allocated"`, `"dma_buf"`,
    `"opaque_fd"` (or another kind of OS handle), `"pointer"`, `"ipc"`, `"mapped"`, `"borrowed"`. Its handle is its
    address. `view()`, `numpy()` and `typed()` show it, except kind `"device"`, which the host may not touch; it is an
    array of bytes for what knows `__array_interface__` or DLPack, and from Python 3.12 on a buffer. `close()` raises
    `InUse` (a `BufferError`) while a view of it lives or a request is bound to it.
    """

    __slots__ = ("_exporter", "_source", "context", "device", "exportable", "kind", "origin", "read_only", "size")

    _exporter: weakref.ref[Any] | None
    _source: Fd | None  # what it was imported from: it can be exported again
    context: Context
    device: Device | None
    exportable: str
    kind: str
    origin: str
    read_only: bool
    size: int

    def __init__(self) -> None:
        raise TypeError("memory is made by a context: alloc_host(), import_dma_buf(), ...; or by Memory.from_handle()")

    @classmethod
    def from_handle(
        cls,
        handle: int,
        size: SupportsIndex,
        *,
        context: Context,
        kind: str = "host",
        device: Device | None = None,
        exportable: str = "",
        owner: object = None,
    ) -> Memory:
        """Somebody else's memory at an address: never freed here, and `owner` lives as long as it does.

        `exportable` names how it was made exportable (`"dma_buf"`), if it was. Nobody can check that: GPU drivers may
        export the pool that small memory lies in, which begins with other bytes. Raises `InvalidArgument`.
        """
        if kind not in ("host", "shared", "device"):
            raise InvalidArgument(f"kind {kind!r} is none of 'host', 'shared', 'device'")
        size = operator.index(size)
        if size <= 0 or not 0 < handle < 1 << 64:
            raise InvalidArgument(f"{size} bytes at {handle:#x} are no memory")
        return make(context, borrow(handle, context, owner), size, kind, device, exportable, "borrowed")

    @property
    def address(self) -> int:
        """Where it begins, for the host and the device alike. Raises `Closed`."""
        return _handle_of(self._box) or self._raise_closed()

    @property
    def properties(self) -> AllocationProperties:
        """Calls zeMemGetAllocProperties."""
        return self.context.alloc_properties(self.address)

    @property
    def id(self) -> int:
        """The driver's number for it, unique in the process. Calls zeMemGetAllocProperties."""
        return self.properties.id

    @property
    def page_size(self) -> int:
        """Bytes of the pages that it is made of. Calls zeMemGetAllocProperties."""
        return self.properties.page_size

    def range(self) -> tuple[int, int]:
        """Base and size in bytes of the whole allocation. Calls zeMemGetAddressRange.

        NPU drivers tell the base as the device sees it, which is not `address`.
        """
        return self.context.address_range(self.address)

    def export(self, kind: str | None = None) -> Exported:
        """An OS handle of the same memory, owned by the caller; other processes and drivers import it.

        It is a `dmabuf.Fd`, on Windows a `ntwin.NtHandle`. The memory lives on behind it after `close()`. What was
        imported is exported as a descriptor of the same buffer. `kind` is how it was made exportable, and may be left
        out. Raises `InvalidArgument` unless it was allocated `exportable` or imported by a descriptor, `NotSupported`.
        Calls zeMemGetAllocProperties for allocations.
        """
        self.require_open()
        if not self.exportable or kind not in (None, self.exportable):
            way_out = "shared memory cannot be" if self.kind == "shared" else "allocate it so"
            raise InvalidArgument(f"{self!r} was not made exportable as {kind or 'anything'}: {way_out}")
        if self._source is not None:
            return Fd.duplicate(self._source)
        self._require_start()
        how = external.policy(self.context, self.context._device(self.device))
        with self.held() as address, self.context.held() as context:
            query, what = external.memory_query(context, address), f"the memory at {address:#x}"
            return external.export(
                how, self.exportable, self.size, "zeMemGetAllocProperties", query, self.context.driver, what
            )

    def ipc_handle(self) -> IpcHandle:
        """What another process opens this memory by (`Context.open_ipc`): Level Zero's own way, 64 bytes.

        The memory lives on until the handle is closed. Raises `NotSupported` (NPU drivers have none: `export()` is
        their way), `InvalidArgument`, `Closed`. Calls zeMemGetIpcHandle, and zeMemPutIpcHandle.
        """
        self.require_open()
        self._require_start()
        return ipc.get(self, self.context, self.size)

    def _require_start(self) -> None:
        """Handles stand for whole allocations: for somebody else's memory the driver is asked whether it is one."""
        if self.origin != "borrowed":
            return
        before = self.context.alloc_properties(self.address - 1)
        if before.type != "unknown" and before.id == self.id:
            raise InvalidArgument(f"{self!r} begins inside an allocation, of which a handle would show the first byte")

    def view(self, format: str = "B", shape: Sequence[int] | None = None) -> memoryview:  # noqa: A002
        """The memory as a memoryview, without a copy.

        `format` is a native one-character format of `struct`, `shape` in elements (all that fits by default). The view
        keeps the memory alive. Raises `NotSupported` for kind `"device"`, `InvalidArgument` when it does not fit.
        """
        whole = memoryview(self._export())
        if self.read_only:
            whole = whole.toreadonly()
        try:
            item = memoryview(b"").cast(format).itemsize  # type: ignore[call-overload]
        except ValueError as error:
            raise InvalidArgument(f"format {format!r} of a view: {error}") from None
        if shape is None:
            return whole[: self.size - self.size % item].cast(format)  # type: ignore[call-overload,no-any-return]
        extents = [operator.index(extent) for extent in shape]
        needed = item * self._count(extents, item)
        if not needed:
            raise InvalidArgument(f"shape {tuple(shape)} has no elements, which a memoryview cannot have")
        return whole[:needed].cast(format, extents)  # type: ignore[call-overload,no-any-return]

    def numpy(self, dtype: npt.DTypeLike = "u1", shape: int | Sequence[int] | None = None) -> npt.NDArray[Any]:
        """The memory as a numpy array, without a copy; `shape` in elements (all that fits by default).

        The array keeps the memory alive. Raises `NotSupported` for kind `"device"`, and `InvalidArgument` when the
        shape does not fit.
        """
        import numpy as np

        kind: np.dtype[Any] = np.dtype(dtype)
        if kind.itemsize == 0 or kind.hasobject or kind.subdtype is not None:
            raise InvalidArgument(f"dtype {kind} has no place in shared memory")
        if shape is None:
            shape = self.size // kind.itemsize
        extents = tuple(shape) if hasattr(shape, "__iter__") else (shape,)
        count = self._count(extents, kind.itemsize)
        return np.frombuffer(self.view(), kind, count).reshape(extents)

    def typed(self, format: str = "|u1", shape: Sequence[SupportsIndex] | None = None) -> interop.Typed:  # noqa: A002
        """The memory as an array that other libraries take by DLPack or `__array_interface__`, without a copy.

        `format` is a NumPy type string (`"<f4"`) or a name like `"bfloat16"`, `shape` in elements (all that fits by
        default). Raises `NotSupported` for kind `"device"`, `InvalidArgument` when it does not fit.
        """
        return interop.Typed(self._export(), self.address, self.size, format, shape, self.read_only)

    def _count(self, shape: Sequence[int], item: int) -> int:
        """Elements of a shape that fits."""
        sizes = [operator.index(extent) for extent in shape]
        count = math.prod(sizes)
        if min(sizes, default=0) < 0 or count * item > self.size:
            raise InvalidArgument(f"shape {tuple(shape)} of {item}-byte elements does not fit into {self.size} bytes")
        return count

    def _export(self) -> Any:
        """What all views hold: one cffi buffer for as long as any of them lives."""
        if self.kind == "device":
            raise NotSupported("the host may not look into device memory: copy_to() or copy_from() moves its bytes")
        exporter = self._exporter and self._exporter()
        if exporter is None or self.closed:
            box = self._box
            if not _c.l0_box_hold(box):
                self._raise_closed()
            # In C alone: an interrupt in a Python function would lose the release. The pointer only holds the keeper.
            keeper = ffi.gc(box, _release)
            pointer = ffi.gc(ffi.cast("char*", box.handle), partial(operator.is_, keeper))
            exporter = ffi.buffer(pointer, self.size)
            self._exporter = weakref.ref(exporter)
        return exporter

    @property
    def __array_interface__(self) -> dict[str, Any]:
        # As a buffer, not by address: what is made of it keeps that alive, and close() sees it.
        data = memoryview(self._export()).toreadonly() if self.read_only else self._export()
        return {"version": 3, "shape": (self.size,), "typestr": "|u1", "data": data, "strides": None}

    def __dlpack_device__(self) -> tuple[int, int]:
        if self.kind == "device":
            raise BufferError(_NO_DLPACK)
        return dlpack.CPU

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        if self.kind == "device":
            raise BufferError(_NO_DLPACK)
        how = (stream, max_version, dl_device, copy)
        return dlpack.export(self._export(), self._box.handle, "|u1", (self.size,), self.size, self.read_only, *how)

    def __ze_memory__(self) -> tuple[int, int, int, int, int]:
        flags = _ZE_FLAGS[self.kind] | (interop.READ_ONLY if self.read_only else 0)
        return 1, self.context.handle, self.address, self.size, flags

    def __buffer__(self, flags: int) -> memoryview:
        if self.read_only and flags & _WRITABLE:
            raise BufferError(f"{self!r} is read-only")
        return self.view()

    def copy_from(self, source: Memory | Buffer, *, offset: SupportsIndex = 0) -> None:
        """Copies all of `source` in, `offset` bytes from the start.

        Memory is copied by the device (zeCommandListAppendMemoryCopy); any other C-contiguous buffer by the host,
        and through a host allocation when this is device memory. Raises `InvalidArgument` when it does not fit.
        """
        if self.read_only:
            raise InvalidArgument(f"{self!r} is read-only")
        offset = operator.index(offset)
        if isinstance(source, Memory):
            self._require_room(offset, source.size)
            self._require_same_context(source)
            with self.held() as to, source.held() as start:
                self.context._transfers(self.device or source.device).copy(to + offset, start, source.size)
            return
        data = ffi.from_buffer(source)
        size = len(data)
        self._require_room(offset, size)
        if size == 0:
            return
        if self.kind != "device":
            with self.held() as to:
                ffi.memmove(ffi.cast("char*", to + offset), data, size)
            return
        with self.context.alloc_host(size) as staging:
            staging.copy_from(source)
            self.copy_from(staging, offset=offset)

    def copy_to(self, target: Memory | Buffer, *, offset: SupportsIndex = 0) -> None:
        """Copies out as much as `target` holds, from `offset` bytes on; see `copy_from`."""
        offset = operator.index(offset)
        if isinstance(target, Memory):
            if target.read_only:
                raise InvalidArgument(f"{target!r} is read-only")
            self._require_room(offset, target.size)
            self._require_same_context(target)
            with self.held() as start, target.held() as to:
                self.context._transfers(self.device or target.device).copy(to, start + offset, target.size)
            return
        data = ffi.from_buffer(target, require_writable=True)
        size = len(data)
        self._require_room(offset, size)
        if size == 0:
            return
        if self.kind != "device":
            with self.held() as start:
                ffi.memmove(data, ffi.cast("char*", start + offset), size)
            return
        with self.context.alloc_host(size) as staging:
            self.copy_to(staging, offset=offset)
            staging.copy_to(target)

    def fill(self, pattern: int | bytes = 0) -> None:
        """Fills all of it with a byte, or with a pattern whose length is a power of two and divides the size.

        The device does it: zeCommandListAppendMemoryFill. Raises `InvalidArgument`.
        """
        if self.read_only:
            raise InvalidArgument(f"{self!r} is read-only")
        if not isinstance(pattern, bytes):
            number = operator.index(pattern)
            if not 0 <= number <= 255:
                raise InvalidArgument(f"{number} is no byte: longer patterns are given as bytes")
            pattern = bytes([number])
        with self.held() as start:
            self.context._transfers(self.device).fill(start, pattern, self.size)

    def _require_room(self, offset: int, size: int) -> None:
        if offset < 0 or size > self.size - offset:
            raise InvalidArgument(f"{size} bytes from offset {offset} on are not within the memory's {self.size}")

    def _require_same_context(self, other: Memory) -> None:
        if other.context.handle != self.context.handle:
            raise InvalidArgument(
                f"{other!r} is memory of another context than {self!r}: import it there, or copy through the host"
            )

    def close(self) -> None:
        """Frees the memory; once, later calls do nothing. Borrowed memory is only let go.

        Raises `InUse` while a view, array or other buffer of it lives. Calls zeMemFree.
        """
        users = self._users()
        if users:
            raise InUse(f"{self!r} cannot be closed: {users}; drop or close them first")
        try:
            super().close()
        finally:
            if self._source is not None:
                self._source.close()

    def _users(self) -> str:
        """What looks at it, in words; a function of its own, so that no traceback is one of them."""
        exporter = self._exporter and self._exporter()
        if exporter is None:
            return ""
        tensors = dlpack.count(exporter)
        shared = f"DLPack tensors ({tensors}, consumed or not), " if tensors else ""
        return f"{shared}arrays, memoryviews or bindings of it are alive"

    def _describe(self) -> str:
        return f"{self.kind} ({self.origin}), {self.size} bytes"


_handle_of = _c.l0_box_handle
_release = _c.l0_box_release
_new = object.__new__


def make(
    context: Context,
    box: CData,
    size: int,
    kind: str,
    device: Device | None,
    exportable: str,
    origin: str,
    *,
    read_only: bool = False,
    source: Fd | None = None,
) -> Memory:
    """Memory around a box: for contexts."""
    memory: Memory = _new(Memory)
    memory._box = box
    memory._native_kind = _MEMORY
    memory._driver_handle = context._driver_handle
    memory._exporter = None
    memory._source = source
    memory.context = context
    memory.size = size
    memory.kind = kind
    memory.device = device
    memory.exportable = exportable
    memory.origin = origin
    memory.read_only = read_only
    return memory
