"""Level Zero for Python: the loader's API in two layers, and memory that other libraries share without a copy.

`l0py.lib` is the raw layer, C names one to one. Everything else is objects: `drivers()`, `find_device()`, `Context`,
`Memory`. Importing opens no library; the first call that needs Level Zero finds and binds a loader.
"""

from types import ModuleType as _ModuleType

try:
    from . import dmabuf, errors, interop, lib, loader
except ModuleNotFoundError as _error:
    if _error.name != "l0py._ffi":
        raise
    raise ImportError(
        f"{__file__} is l0py's source without its compiled part. In a checkout it hides an installed l0py: start "
        "Python elsewhere, or install the checkout itself with `pip install -e .` (scripts/setup does, into .venv)"
    ) from _error
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
from .image import Image, ImageProperties
from .ipc import IpcHandle
from .memory import AllocationProperties, Memory
from .physical_memory import PhysicalMemory, VirtualRange

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
    "Image",
    "ImageProperties",
    "InUse",
    "InvalidArgument",
    "IpcHandle",
    "LoaderNotFound",
    "Memory",
    "NoDevice",
    "NoDriver",
    "NotPermitted",
    "NotSupported",
    "OutOfMemory",
    "PhysicalMemory",
    "QueueGroup",
    "VirtualRange",
    "dmabuf",
    "drivers",
    "errors",
    "find_device",
    "interop",
    "lib",
    "loader",
    "softdriver",
]


def __getattr__(name: str) -> _ModuleType:
    """`l0py.softdriver`, imported when it is asked for: on real hardware it never is."""
    if name == "softdriver":
        from importlib import import_module

        return import_module(".softdriver", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
