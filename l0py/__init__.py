"""Level Zero for Python: the loader's API in two layers, and memory that other libraries share without a copy.

`l0py.lib` is the raw layer, C names one to one. Everything else is objects: `drivers()`, `find_device()`, `Context`,
`Memory`. Importing opens no library; the first call that needs Level Zero finds and binds a loader.
"""

from . import dmabuf, errors, lib, loader, softdriver
from .context import Context
from .device import Device, DeviceMemory, DeviceProperties, ExternalMemory, QueueGroup
from .driver import Driver, DriverProperties, drivers, find_device
from .errors import (
    BadDescriptor,
    Closed,
    DeviceLost,
    Error,
    FunctionMissing,
    InUse,
    InvalidArgument,
    LoaderNotFound,
    NoDevice,
    NoDriver,
    NotPermitted,
    NotSupported,
    OutOfMemory,
)
from .memory import AllocationProperties, Memory

__version__ = "0.1.0"

__all__ = [
    "AllocationProperties",
    "BadDescriptor",
    "Closed",
    "Context",
    "Device",
    "DeviceLost",
    "DeviceMemory",
    "DeviceProperties",
    "Driver",
    "DriverProperties",
    "Error",
    "ExternalMemory",
    "FunctionMissing",
    "InUse",
    "InvalidArgument",
    "LoaderNotFound",
    "Memory",
    "NoDevice",
    "NoDriver",
    "NotPermitted",
    "NotSupported",
    "OutOfMemory",
    "QueueGroup",
    "dmabuf",
    "drivers",
    "errors",
    "find_device",
    "lib",
    "loader",
    "softdriver",
]
