"""Drivers: what the loader found, and how they are initialised."""

from __future__ import annotations

import threading
from typing import NamedTuple

from . import lib
from ._ffi import ffi
from .device import DEVICE_TYPES, Device
from .errors import InvalidArgument, NoDevice, NoDriver, check
from .handles import Permanent

__all__ = ["Driver", "DriverProperties", "drivers", "find_device"]

_UNINITIALIZED = lib.ZE_RESULT_ERROR_UNINITIALIZED
#: How the names of the software driver's devices begin: for programs it is Intel's driver in all else.
_SOFTWARE_NAME = "l0py software "

_WAY_OUT = (
    "install the device's driver, or use the software driver: L0PY_SOFTDRIVER=1 in the environment, "
    "or l0py.softdriver.enable() before anything else uses Level Zero"
)

_WAYS_OUT = {"npu": _WAY_OUT, "gpu": _WAY_OUT.replace("=1", "=npu,gpu").replace("enable()", 'enable("npu", "gpu")')}

_lock = threading.Lock()
_drivers: tuple[Driver, ...] = ()


class DriverProperties(NamedTuple):
    """`uuid` (16 bytes) and `version`, the driver's own number."""

    uuid: bytes
    version: int


class Driver(Permanent):
    """A driver. It lives as long as the process; equal and hashed by handle."""

    __slots__ = ("_devices", "_extensions")

    _devices: tuple[Device, ...] | None
    _extensions: dict[str, tuple[int, int]] | None

    def __init__(self) -> None:
        raise TypeError("drivers are not made: see l0py.drivers(), or Driver.from_handle()")

    @classmethod
    def from_handle(cls, handle: int) -> Driver:
        """A driver from its `ze_driver_handle_t`."""
        driver: Driver = object.__new__(cls)
        driver.handle = handle
        driver._devices = None
        driver._extensions = None
        return driver

    def devices(self) -> tuple[Device, ...]:
        """Its devices, the same objects each time. Calls zeDeviceGet."""
        if self._devices is None:
            count = ffi.new("uint32_t*")
            check(lib.zeDeviceGet(self.handle, count, ffi.NULL), "zeDeviceGet", driver=self.handle)
            handles = ffi.new("ze_device_handle_t[]", count[0])
            check(lib.zeDeviceGet(self.handle, count, handles), "zeDeviceGet", driver=self.handle)
            self._devices = tuple(Device.from_handle(handles[i], self) for i in range(count[0]))
        return self._devices

    @property
    def properties(self) -> DriverProperties:
        """Calls zeDriverGetProperties."""
        out = ffi.new("ze_driver_properties_t*", {"stype": lib.ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES})
        check(lib.zeDriverGetProperties(self.handle, out), "zeDriverGetProperties", driver=self.handle)
        return DriverProperties(bytes(out.uuid.id), out.driverVersion)

    @property
    def api_version(self) -> tuple[int, int]:
        """The specification it follows: `(1, 13)`. Calls zeDriverGetApiVersion."""
        out = ffi.new("ze_api_version_t*")
        check(lib.zeDriverGetApiVersion(self.handle, out), "zeDriverGetApiVersion", driver=self.handle)
        return out[0] >> 16, out[0] & 0xFFFF

    @property
    def extensions(self) -> dict[str, tuple[int, int]]:
        """Its extensions, each with its version. Calls zeDriverGetExtensionProperties once."""
        if self._extensions is None:
            name, count = "zeDriverGetExtensionProperties", ffi.new("uint32_t*")
            check(lib.zeDriverGetExtensionProperties(self.handle, count, ffi.NULL), name, driver=self.handle)
            found = ffi.new("ze_driver_extension_properties_t[]", count[0])
            check(lib.zeDriverGetExtensionProperties(self.handle, count, found), name, driver=self.handle)
            self._extensions = {
                ffi.string(found[i].name).decode(): (found[i].version >> 16, found[i].version & 0xFFFF)
                for i in range(count[0])
            }
        return dict(self._extensions)

    @property
    def kind(self) -> str:
        """What its first device is: `"npu"`, `"gpu"`, ...; `"none"` when it has none."""
        devices = self.devices()
        return devices[0].type if devices else "none"

    @property
    def is_software(self) -> bool:
        """Whether it is l0py's software driver."""
        return any(device.name.startswith(_SOFTWARE_NAME) for device in self.devices())

    def __repr__(self) -> str:
        return f"<l0py.Driver at {self.handle:#x}>"


def drivers() -> tuple[Driver, ...]:
    """All drivers, the same objects each time; initialises Level Zero at the first call.

    Raises `LoaderNotFound`, `NoDriver`. Calls zeInitDrivers, or zeInit and zeDriverGet where that is missing or finds
    nothing. A failed zeInit is final: every later native call in this process is refused.
    """
    global _drivers
    if not _drivers:
        with _lock:
            _drivers = _drivers or tuple(map(Driver.from_handle, _initialise()))
    return _drivers


def _initialise() -> list[int]:
    found = _init_drivers() or _init()
    if not found:
        raise NoDriver(f"Level Zero has no driver: {_WAY_OUT}")
    return found


def _init_drivers() -> list[int]:
    """The way of specification 1.10; empty when the loader or its driver does not know it."""
    if not lib.has("zeInitDrivers"):
        return []
    desc = ffi.new(
        "ze_init_driver_type_desc_t*",
        {"stype": lib.ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC, "flags": 0xFFFFFFFF},
    )
    count = ffi.new("uint32_t*")
    if lib.zeInitDrivers(count, ffi.NULL, desc) != 0 or count[0] == 0:
        return []
    handles = ffi.new("ze_driver_handle_t[]", count[0])
    check(lib.zeInitDrivers(count, handles, desc), "zeInitDrivers")
    found = list(handles)[: count[0]]
    # Older validation layers take handles for invalid until zeDriverGet has shown them, OpenVINO's too.
    lib.zeDriverGet(count, handles)
    return found


def _init() -> list[int]:
    """The old way."""
    result = lib.zeInit(0)
    if result == _UNINITIALIZED:
        raise NoDriver(f"Level Zero has no driver that starts here: {_WAY_OUT}", result=result, function="zeInit")
    check(result, "zeInit")
    count = ffi.new("uint32_t*")
    check(lib.zeDriverGet(count, ffi.NULL), "zeDriverGet")
    handles = ffi.new("ze_driver_handle_t[]", count[0])
    check(lib.zeDriverGet(count, handles), "zeDriverGet")
    return list(handles)[: count[0]]


def find_device(kind: str = "npu") -> Device:
    """The first device of that kind: `"npu"`, `"gpu"`, ... (see `Device.type`).

    Raises `LoaderNotFound`, `NoDriver`, `NoDevice`, and `InvalidArgument` for what is no kind.
    """
    if kind not in DEVICE_TYPES.values():
        raise InvalidArgument(f"{kind!r} is no kind of device: there are {', '.join(DEVICE_TYPES.values())}")
    there = [device for driver in drivers() for device in driver.devices()]
    for device in there:
        if device.type == kind:
            return device
    names = ", ".join(f"{device.name} ({device.type})" for device in there) or "none"
    way_out = _WAYS_OUT.get(kind, "install the device's driver")
    raise NoDevice(f"no {kind} among Level Zero's devices: {names}; {way_out}")
