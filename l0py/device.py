"""Devices: what they are and what they can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from . import lib
from ._ffi import ffi
from .errors import check
from .handles import Permanent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .driver import Driver

__all__ = ["Device", "DeviceMemory", "DeviceProperties", "ExternalMemory", "QueueGroup"]

DEVICE_TYPES = {
    lib.ZE_DEVICE_TYPE_GPU: "gpu",
    lib.ZE_DEVICE_TYPE_CPU: "cpu",
    lib.ZE_DEVICE_TYPE_FPGA: "fpga",
    lib.ZE_DEVICE_TYPE_MCA: "mca",
    lib.ZE_DEVICE_TYPE_VPU: "npu",
}

#: Kinds of OS handles, by the flag that stands for them.
EXTERNAL_KINDS = {
    "opaque_fd": lib.ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD,
    "dma_buf": lib.ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF,
    "opaque_win32": lib.ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_WIN32,
    "opaque_win32_kmt": lib.ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_WIN32_KMT,
    "d3d11_texture": lib.ZE_EXTERNAL_MEMORY_TYPE_FLAG_D3D11_TEXTURE,
    "d3d11_texture_kmt": lib.ZE_EXTERNAL_MEMORY_TYPE_FLAG_D3D11_TEXTURE_KMT,
    "d3d12_heap": lib.ZE_EXTERNAL_MEMORY_TYPE_FLAG_D3D12_HEAP,
    "d3d12_resource": lib.ZE_EXTERNAL_MEMORY_TYPE_FLAG_D3D12_RESOURCE,
}

_GROUP_KINDS = {
    "compute": lib.ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE,
    "copy": lib.ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY,
    "cooperative_kernels": lib.ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COOPERATIVE_KERNELS,
    "metrics": lib.ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_METRICS,
}


class DeviceProperties(NamedTuple):
    """Sizes in bytes, `timer_resolution` in ns per tick; `core_clock` in MHz (NPU drivers tell Hz)."""

    name: str
    type: str
    uuid: bytes
    vendor_id: int
    device_id: int
    integrated: bool
    core_clock: int
    max_alloc_size: int
    timer_resolution: int
    timestamp_bits: int


class DeviceMemory(NamedTuple):
    """One memory of a device: its name, size in bytes, clock in MHz and bus width in bits."""

    name: str
    size: int
    clock: int
    bus_width: int


class ExternalMemory(NamedTuple):
    """The kinds of OS handles that allocations and images can be made from and exported as: `"dma_buf"`, ..."""

    imports: frozenset[str]
    exports: frozenset[str]
    image_imports: frozenset[str] = frozenset()
    image_exports: frozenset[str] = frozenset()


class QueueGroup(NamedTuple):
    """One group of command queues: what they can do (`"compute"`, `"copy"`, ...) and how many there are.

    `max_fill_pattern` is in bytes.
    """

    ordinal: int
    kinds: frozenset[str]
    queues: int
    max_fill_pattern: int


class Device(Permanent):
    """A device. It lives as long as the process; equal and hashed by handle."""

    __slots__ = ("_properties", "_queue_groups", "driver")

    driver: Driver
    _properties: DeviceProperties | None
    _queue_groups: tuple[QueueGroup, ...] | None

    def __init__(self) -> None:
        raise TypeError("devices are not made: see l0py.find_device(), Driver.devices(), or Device.from_handle()")

    @classmethod
    def from_handle(cls, handle: int, driver: Driver) -> Device:
        """A device from its `ze_device_handle_t` and its driver."""
        device: Device = object.__new__(cls)
        device.handle = handle
        device.driver = driver
        device._properties = None
        device._queue_groups = None
        return device

    def _check(self, result: int, function: str) -> None:
        check(result, function, driver=self.driver.handle)

    @property
    def properties(self) -> DeviceProperties:
        """Calls zeDeviceGetProperties once."""
        if self._properties is None:
            out = ffi.new("ze_device_properties_t*", {"stype": lib.ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES})
            self._check(lib.zeDeviceGetProperties(self.handle, out), "zeDeviceGetProperties")
            self._properties = DeviceProperties(
                name=_text(out.name),
                type=DEVICE_TYPES.get(out.type, f"type {out.type}"),
                uuid=bytes(out.uuid.id),
                vendor_id=out.vendorId,
                device_id=out.deviceId,
                integrated=bool(out.flags & lib.ZE_DEVICE_PROPERTY_FLAG_INTEGRATED),
                core_clock=out.coreClockRate,
                max_alloc_size=out.maxMemAllocSize,
                timer_resolution=out.timerResolution,
                timestamp_bits=out.timestampValidBits,
            )
        return self._properties

    @property
    def name(self) -> str:
        """Its name."""
        return self.properties.name

    @property
    def type(self) -> str:
        """`"npu"`, `"gpu"`, ..."""
        return self.properties.type

    @property
    def uuid(self) -> bytes:
        """16 bytes, the same in every process."""
        return self.properties.uuid

    @property
    def memory(self) -> tuple[DeviceMemory, ...]:
        """Its memories. Calls zeDeviceGetMemoryProperties."""
        structure = lib.ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES
        found = self._list("zeDeviceGetMemoryProperties", "ze_device_memory_properties_t", structure)
        return tuple(DeviceMemory(_text(m.name), m.totalSize, m.maxClockRate, m.maxBusWidth) for m in found)

    @property
    def external_memory(self) -> ExternalMemory:
        """The OS handles it imports and exports. Calls zeDeviceGetExternalMemoryProperties."""
        structure = lib.ZE_STRUCTURE_TYPE_DEVICE_EXTERNAL_MEMORY_PROPERTIES
        out = ffi.new("ze_device_external_memory_properties_t*", {"stype": structure})
        result = lib.zeDeviceGetExternalMemoryProperties(self.handle, out)
        self._check(result, "zeDeviceGetExternalMemoryProperties")
        masks = (
            out.memoryAllocationImportTypes,
            out.memoryAllocationExportTypes,
            out.imageImportTypes,
            out.imageExportTypes,
        )
        return ExternalMemory(*(_flags(mask, EXTERNAL_KINDS) for mask in masks))

    @property
    def queue_groups(self) -> tuple[QueueGroup, ...]:
        """Its groups of command queues. Calls zeDeviceGetCommandQueueGroupProperties once."""
        if self._queue_groups is None:
            structure = lib.ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES
            name, kind = "zeDeviceGetCommandQueueGroupProperties", "ze_command_queue_group_properties_t"
            self._queue_groups = tuple(
                QueueGroup(i, _flags(g.flags, _GROUP_KINDS), g.numQueues, g.maxMemoryFillPatternSize)
                for i, g in enumerate(self._list(name, kind, structure))
            )
        return self._queue_groups

    def can_access_peer(self, peer: Device) -> bool:
        """Whether it reaches the memory of another device of its driver directly.

        False for a device of another driver. Raises `NotSupported` where the driver does not tell (NPU drivers). Calls
        zeDeviceCanAccessPeer.
        """
        if peer.driver != self.driver:
            return False
        out = ffi.new("ze_bool_t*")
        self._check(lib.zeDeviceCanAccessPeer(self.handle, peer.handle, out), "zeDeviceCanAccessPeer")
        return bool(out[0])

    def _list(self, function: str, kind: str, structure: int) -> Iterator[Any]:
        """What a function of the two-call pattern lists; an item is good until the next one is asked for."""
        call, count = getattr(lib, function), ffi.new("uint32_t*")
        self._check(call(self.handle, count, ffi.NULL), function)
        found = ffi.new(f"{kind}[]", [{"stype": structure}] * count[0])
        self._check(call(self.handle, count, found), function)
        yield from found[0 : min(count[0], len(found))]

    def __repr__(self) -> str:
        return f"<l0py.Device {self.name!r} ({self.type}) at {self.handle:#x}>"


def _text(name: Any) -> str:
    return str(ffi.string(name).decode(errors="replace"))


def _flags(value: int, names: dict[str, int]) -> frozenset[str]:
    return frozenset(name for name, flag in names.items() if value & flag)
