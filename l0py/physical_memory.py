"""Physical memory, and ranges of virtual addresses that it is mapped into."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, SupportsIndex

from . import external, lib
from ._ffi import ffi
from ._ffi import lib as _c
from .errors import Error, InvalidArgument, check
from .handles import CData, Handle, borrow, create, discard, new_box
from .memory import Memory, make

if TYPE_CHECKING:
    from .context import Context
    from .device import Device
    from .dmabuf import Fd
    from .external import Exported, HasFileno

__all__ = ["PhysicalMemory", "VirtualRange"]

_PLACES = {
    "device": lib.ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_DEVICE,
    "host": lib.ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_HOST,
}
_ACCESS = {
    "none": lib.ZE_MEMORY_ACCESS_ATTRIBUTE_NONE,
    "read_write": lib.ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE,
    "read_only": lib.ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY,
}
_ACCESS_NAMES = {number: name for name, number in _ACCESS.items()}


class PhysicalMemory(Handle):
    """Memory without an address until a `VirtualRange` maps it; made by `Context.create_physical`.

    `size` is in bytes, `kind` is `"device"` or `"host"`. It lives at least as long as its mappings.
    """

    __slots__ = ("_source", "context", "device", "exportable", "kind", "size")

    _source: Fd | None  # what it was imported from: it can be exported again
    context: Context
    device: Device
    exportable: str
    kind: str
    size: int

    def __init__(self) -> None:
        raise TypeError("physical memory is made by a context: create_physical(), import_physical()")

    @classmethod
    def from_handle(
        cls,
        handle: int,
        size: SupportsIndex,
        *,
        context: Context,
        device: Device | None = None,
        kind: str = "device",
        exportable: str = "",
        owner: object = None,
    ) -> PhysicalMemory:
        """Somebody else's `ze_physical_mem_handle_t`: never destroyed here, and `owner` lives as long as it does."""
        return _physical(
            borrow(handle, context, owner),
            context,
            context._device(device),
            operator.index(size),
            kind,
            exportable,
            None,
        )

    @property
    def id(self) -> int:
        """The driver's number for it. Calls zePhysicalMemGetProperties."""
        out = self._properties(ffi.NULL)
        with self.held() as handle, self.context.held() as context:
            result = lib.zePhysicalMemGetProperties(context, handle, out)
        check(result, "zePhysicalMemGetProperties", driver=self._driver_handle)
        return int(out.id)

    def export(self, kind: str | None = None) -> Exported:
        """An OS handle of the same memory, as `Memory.export` gives it. Calls zePhysicalMemGetProperties."""
        return external.export_object(self, kind, "zePhysicalMemGetProperties", self._properties, "physical memory")

    @staticmethod
    def _properties(chained: CData) -> CData:
        structure = lib.ZE_STRUCTURE_TYPE_PHYSICAL_MEM_PROPERTIES
        return ffi.new("ze_physical_mem_properties_t*", {"stype": structure, "pNext": chained})

    def close(self) -> None:
        """Gives it back as soon as nothing maps it any more; once. Calls zePhysicalMemDestroy."""
        try:
            super().close()
        finally:
            if self._source is not None:
                self._source.close()

    def _describe(self) -> str:
        return f"({self.kind}), {self.size} bytes"


class VirtualRange(Handle):
    """Reserved virtual addresses, `size` bytes from `address` on; made by `Context.reserve`.

    The addresses are given back when the range and all that is mapped into it are closed.
    """

    __slots__ = ("context", "size")

    context: Context
    size: int

    def __init__(self) -> None:
        raise TypeError("virtual addresses are reserved by a context: reserve()")

    @classmethod
    def from_handle(cls, handle: int, size: SupportsIndex, *, context: Context, owner: object = None) -> VirtualRange:
        """Somebody else's reservation at an address: never given back here; `owner` lives as long as it does."""
        return _range(borrow(handle, context, owner), context, operator.index(size))

    @property
    def address(self) -> int:
        """Where it begins. Raises `Closed`."""
        return self.handle

    def map(
        self,
        physical: PhysicalMemory,
        *,
        at: SupportsIndex = 0,
        offset: SupportsIndex = 0,
        size: SupportsIndex | None = None,
        access: str = "read_write",
    ) -> Memory:
        """`size` bytes of the physical memory from `offset` on, shown `at` bytes from the range's start.

        All three are multiples of the page size (`Context.page_size`); `size` is all from `offset` on by default.
        `access` is the device's: `"read_write"`, `"read_only"` or `"none"`. Closing the memory unmaps it. Some drivers
        map device memory once at a time. Raises `InvalidArgument`, `NotSupported`, `Closed`. Calls zeVirtualMemMap, and
        zeVirtualMemUnmap.
        """
        start, first = operator.index(at), operator.index(offset)
        length = physical.size - first if size is None else operator.index(size)
        self._require_inside(start, length)
        if first < 0 or length > physical.size - first:
            raise InvalidArgument(f"{length} bytes from offset {first} on are not within {physical!r}")
        box = new_box(_c.L0_MAPPING, self)
        try:
            if not _c.l0_box_lean_on(box, physical._box):
                physical._raise_closed()
            with self.held() as address, physical.held() as handle, self.context.held() as context:
                result = lib.zeVirtualMemMap(context, address + start, length, handle, first, _access(access))
                check(result, "zeVirtualMemMap", driver=self._driver_handle, here=f"mapping {length} bytes")
                box.size, box.handle = length, address + start
        except Error:
            discard(box)
            raise
        device = None if physical.kind == "host" else physical.device
        memory = make(self.context, box, length, physical.kind, device, "", "mapped", read_only=access == "read_only")
        memory._native_kind = _c.L0_MAPPING
        return memory

    def set_access(self, access: str, *, at: SupportsIndex = 0, size: SupportsIndex | None = None) -> None:
        """What the device may do there: `"read_write"`, `"read_only"` or `"none"`; some drivers take the whole range.

        Calls zeVirtualMemSetAccessAttribute.
        """
        start = operator.index(at)
        length = self.size - start if size is None else operator.index(size)
        self._require_inside(start, length)
        with self.held() as address, self.context.held() as context:
            result = lib.zeVirtualMemSetAccessAttribute(context, address + start, length, _access(access))
        check(result, "zeVirtualMemSetAccessAttribute", driver=self._driver_handle)

    def access(self, *, at: SupportsIndex = 0, size: SupportsIndex | None = None) -> tuple[str, int]:
        """What the device may do from `at` on, and for how many of the `size` bytes that holds.

        Calls zeVirtualMemGetAccessAttribute.
        """
        start = operator.index(at)
        length = self.size - start if size is None else operator.index(size)
        self._require_inside(start, length)
        found, alike = ffi.new("ze_memory_access_attribute_t*"), ffi.new("size_t*")
        with self.held() as address, self.context.held() as context:
            result = lib.zeVirtualMemGetAccessAttribute(context, address + start, length, found, alike)
        check(result, "zeVirtualMemGetAccessAttribute", driver=self._driver_handle)
        return _ACCESS_NAMES.get(found[0], f"access {found[0]}"), int(alike[0])

    def _require_inside(self, at: int, size: int) -> None:
        if at < 0 or size <= 0 or size > self.size - at:
            raise InvalidArgument(f"{size} bytes from {at} on are not within the range's {self.size}")

    def _describe(self) -> str:
        return f"of {self.size} bytes"


def _access(name: str) -> int:
    if name not in _ACCESS:
        raise InvalidArgument(f"access {name!r} is none of {', '.join(map(repr, _ACCESS))}")
    return _ACCESS[name]


def page_size(context: Context, device: Device, size: int) -> int:
    """What sizes and offsets must be multiples of. Calls zeVirtualMemQueryPageSize."""
    if not 0 < size < 1 << 64:
        raise InvalidArgument(f"{size} bytes have no pages: size must be positive")
    out = ffi.new("size_t*")
    with context.held() as handle:
        result = lib.zeVirtualMemQueryPageSize(handle, device.handle, size, out)
    check(result, "zeVirtualMemQueryPageSize", driver=context._driver_handle)
    return int(out[0])


def make_physical(context: Context, device: Device, size: int, kind: str, exportable: bool | str) -> PhysicalMemory:
    """New physical memory: for contexts. Calls zePhysicalMemCreate."""
    external_kind, offered = "", external.policy(context, device).offered.exports
    if exportable:
        external_kind = external.export_kind(exportable, offered)
        external.require_offered(device, external_kind, offered, "export physical memory as")
    return _create(context, device, size, kind, external_kind, None)


def import_physical(
    context: Context,
    device: Device,
    fd: HasFileno | SupportsIndex,
    size: SupportsIndex | None,
    external_kind: str,
    kind: str,
) -> PhysicalMemory:
    """Physical memory behind a descriptor: for contexts. Calls zePhysicalMemCreate."""
    number = external.descriptor(fd)
    wanted = external.import_size(number, size)
    offered = external.policy(context, device).offered.imports
    external.require_offered(device, external_kind, offered, "import physical memory from")
    return _create(context, device, wanted, kind, external_kind, number)


def _create(
    context: Context, device: Device, size: int, kind: str, external_kind: str, imported: int | None
) -> PhysicalMemory:
    if kind not in _PLACES:
        raise InvalidArgument(f"kind {kind!r} is none of {', '.join(map(repr, _PLACES))}")
    context._refuse(size, 0)
    page = page_size(context, device, size)
    if size % page:
        raise InvalidArgument(f"physical memory cannot have {size} bytes: it has a positive multiple of {page}")
    chained = external.chain(external_kind, imported is not None)
    structure, place = lib.ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, _PLACES[kind]
    desc = ffi.new("ze_physical_mem_desc_t*", {"stype": structure, "pNext": chained, "flags": place, "size": size})
    driver = context._driver_handle

    def call() -> CData:
        with context.held() as handle:
            return create(
                _c.L0_PHYSICAL_MEMORY, context, "zePhysicalMemCreate", handle, device.handle, desc, driver=driver
            )

    box, source = external.made(chained, imported, call)
    return _physical(box, context, device, size, kind, external_kind, source)


def _physical(
    box: CData, context: Context, device: Device, size: int, kind: str, exportable: str, source: Fd | None
) -> PhysicalMemory:
    physical: PhysicalMemory = object.__new__(PhysicalMemory)
    Handle.__init__(physical, box, _c.L0_PHYSICAL_MEMORY, context._driver_handle)
    physical.context, physical.device, physical.size = context, device, size
    physical.kind, physical.exportable, physical._source = kind, exportable, source
    return physical


def reserve(context: Context, size: int, start: int) -> VirtualRange:
    """A range of virtual addresses: for contexts. Calls zeVirtualMemReserve."""
    driver = context._driver_handle
    with context.held() as handle:
        box = create(_c.L0_RESERVATION, context, "zeVirtualMemReserve", handle, start, size, driver=driver, size=size)
    return _range(box, context, size)


def _range(box: CData, context: Context, size: int) -> VirtualRange:
    reserved: VirtualRange = object.__new__(VirtualRange)
    Handle.__init__(reserved, box, _c.L0_RESERVATION, context._driver_handle)
    reserved.context, reserved.size = context, size
    return reserved
