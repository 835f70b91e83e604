"""What can go wrong, as exceptions: one class for each thing a caller can do about it.

Every class is also the builtin that people would catch. `check` turns a `ze_result_t` into one of them; SUCCESS,
NOT_READY and the query answers are answers, not errors.
"""

from __future__ import annotations

from ._enums import ze_result_t
from ._ffi import ffi, lib

__all__ = [
    "BadDescriptor",
    "Closed",
    "DeviceLost",
    "Error",
    "FunctionMissing",
    "InUse",
    "InvalidArgument",
    "LoaderNotFound",
    "NoDevice",
    "NoDriver",
    "NotPermitted",
    "NotSupported",
    "OutOfMemory",
    "check",
    "from_result",
]


class Error(RuntimeError):
    """Anything that Level Zero or l0py refused; the classes below say what to do about it.

    `result` is the `ze_result_t` as an int and `function` the C function that answered it (both None when l0py itself
    refused), `description` what the driver said beyond the number (often empty).
    """

    def __init__(
        self, message: str, *, result: int | None = None, function: str | None = None, description: str = ""
    ) -> None:
        super().__init__(message)
        self.result = result
        self.function = function
        self.description = description

    @property
    def name(self) -> str | None:
        """The result's C name, `"ZE_RESULT_ERROR_DEVICE_LOST"`; None without a result."""
        return None if self.result is None else result_name(self.result)

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class InvalidArgument(Error, ValueError):
    """A value that cannot work: correct the call."""


class BadDescriptor(InvalidArgument, OSError):
    """A file descriptor that is closed, or is no memory: pass one that is. `errno` and `strerror` are set."""

    def __init__(
        self,
        message: str,
        *,
        errno: int | None = None,
        result: int | None = None,
        function: str | None = None,
        description: str = "",
    ) -> None:
        super().__init__(message, result=result, function=function, description=description)
        self.errno, self.strerror = errno, message


class Closed(Error, ValueError):
    """The object, or what it was made from, is closed: make a new one."""


class InUse(Error, BufferError):
    """Something still looks at it: drop that first."""


class OutOfMemory(Error, MemoryError):
    """Free something, or ask for less."""


class NotSupported(Error, NotImplementedError):
    """The driver or the device cannot do it: take another way."""


class FunctionMissing(NotSupported):
    """The bound loader lacks the function: a newer loader has it."""


class NotPermitted(Error, PermissionError):
    """The user may not do it: get the right to (group `render`, say)."""


class DeviceLost(Error, OSError):
    """The device was reset, removed or put to sleep: make everything anew, or wait."""


class LoaderNotFound(Error, OSError):
    """No Level Zero loader could be opened: install one, or correct `L0PY_LOADER`."""


class NoDriver(Error, LookupError):
    """The loader found no driver that works: install one, or use the software driver."""


class NoDevice(Error, LookupError):
    """No driver has a device of that kind."""


#: By result: the exception's class, and what the result means where the name does not say it.
_MEANING: dict[str, tuple[type[Error], str]] = {
    "DEVICE_LOST": (DeviceLost, "the device hung, was reset or was removed"),
    "DEVICE_REQUIRES_RESET": (DeviceLost, "the device must be reset"),
    "DEVICE_IN_LOW_POWER_STATE": (DeviceLost, "the device is in a low power state"),
    "SURVIVABILITY_MODE_DETECTED": (DeviceLost, "the device is in survivability mode and needs a firmware update"),
    "OUT_OF_HOST_MEMORY": (OutOfMemory, "out of host memory"),
    "OUT_OF_DEVICE_MEMORY": (OutOfMemory, "out of device memory"),
    "INSUFFICIENT_PERMISSIONS": (NotPermitted, "not permitted"),
    "NOT_AVAILABLE": (NotSupported, "not available here"),
    "DEPENDENCY_UNAVAILABLE": (NotSupported, "something that the driver needs is missing"),
    "UNINITIALIZED": (NoDriver, "no driver could be initialised, or zeInit was not called"),
    "UNSUPPORTED_VERSION": (NotSupported, "the loader, a layer and the driver are of versions that do not fit"),
    "UNSUPPORTED_FEATURE": (NotSupported, "the driver or the loader does not have it"),
    "UNSUPPORTED_ENUMERATION": (NotSupported, "the driver does not support that kind or flag"),
    "UNSUPPORTED_IMAGE_FORMAT": (NotSupported, "the driver does not support that image format"),
    "GRAPH_CAPTURE_UNSUPPORTED": (NotSupported, "the operation cannot be captured"),
    "HANDLE_OBJECT_IN_USE": (InUse, "the device still uses the object"),
    "ADDRESS_NOT_FOUND": (InvalidArgument, "no memory of this driver lies at the address"),
    "UNSUPPORTED_SIZE": (InvalidArgument, "the driver does not take that size"),
    "UNSUPPORTED_ALIGNMENT": (InvalidArgument, "the alignment must be a power of two that the driver supports"),
    "OVERLAPPING_REGIONS": (InvalidArgument, "source and destination overlap"),
}

_ANSWERS = frozenset({"SUCCESS", "NOT_READY", "QUERY_TRUE", "QUERY_FALSE"})


def result_name(result: int) -> str:
    """The C name of a result, or `"ZE_RESULT_<number>"` for one that the specification does not have."""
    return ze_result_t.get(result, f"ZE_RESULT_{result:#x}")


def _short(result: int) -> str:
    name = result_name(result)
    for prefix in ("ZE_RESULT_ERROR_", "ZE_RESULT_"):
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name


def check(result: int, function: str, *, driver: int = 0, here: str = "") -> int:
    """The result itself when it is an answer; raises what it means otherwise.

    `driver` (a handle) is asked for its description of the error, `here` says what was being done.
    """
    if result and _short(result) not in _ANSWERS:
        raise from_result(result, function, driver=driver, here=here)
    return result


def from_result(result: int, function: str, *, driver: int = 0, here: str = "") -> Error:
    """The exception for a result. Calls zeDriverGetLastErrorDescription."""
    short = _short(result)
    invalid = short.startswith(("INVALID_", "GRAPH_"))
    kind, meaning = _MEANING.get(short, (InvalidArgument if invalid else Error, ""))
    description = _last_error(driver)
    said = f"the driver says: {description}" if description else ""
    text = f"{function} answered {result_name(result)} ({result:#x})"
    text = "; ".join(part for part in (text, meaning, here, said) if part)
    return kind(text, result=result, function=function, description=description)


def _last_error(driver: int) -> str:
    """What the driver said about this thread's last failure; empty when it says nothing."""
    if not driver:
        return ""
    text = ffi.new("const char**")
    if lib.zeDriverGetLastErrorDescription(driver, text) != 0 or text[0] == ffi.NULL:
        return ""
    return str(ffi.string(text[0], 4096).decode(errors="replace")).strip()
