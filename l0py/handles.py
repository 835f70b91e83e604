"""Ownership: the one place where native handles are owned, borrowed and released.

A native handle lies in a box (`native/binding/handles.c`) that holds its parent's box. So a context that is closed, or
collected first, is destroyed natively only when the last thing made from it is gone; using either raises `Closed`.
`close()` runs once; the garbage collector does the same through a C destructor. A child of a fork releases nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import lib
from ._ffi import ffi
from ._ffi import lib as _c
from .errors import Closed, Error, InUse, OutOfMemory, check

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["CData", "Handle", "live_objects"]

CData = Any

_drop = _c.l0_box_drop
_handle_of = _c.l0_box_handle

_DESTROYED_BY = {
    _c.L0_CONTEXT: "zeContextDestroy",
    _c.L0_MEMORY: "zeMemFree",
    _c.L0_COMMAND_QUEUE: "zeCommandQueueDestroy",
    _c.L0_COMMAND_LIST: "zeCommandListDestroy",
    _c.L0_FENCE: "zeFenceDestroy",
    _c.L0_IMAGE: "zeImageDestroy",
    _c.L0_PHYSICAL_MEMORY: "zePhysicalMemDestroy",
    _c.L0_RESERVATION: "zeVirtualMemFree",
    _c.L0_MAPPING: "zeVirtualMemUnmap",
    _c.L0_IPC_HANDLE: "zeMemPutIpcHandle",
    _c.L0_IPC_MEMORY: "zeMemCloseIpcHandle",
}

_COUNTED = {
    "borrowed": _c.L0_BORROWED,
    "context": _c.L0_CONTEXT,
    "memory": _c.L0_MEMORY,
    "command_queue": _c.L0_COMMAND_QUEUE,
    "command_list": _c.L0_COMMAND_LIST,
    "fence": _c.L0_FENCE,
    "image": _c.L0_IMAGE,
    "physical_memory": _c.L0_PHYSICAL_MEMORY,
    "reservation": _c.L0_RESERVATION,
    "mapping": _c.L0_MAPPING,
    "ipc_handle": _c.L0_IPC_HANDLE,
    "ipc_memory": _c.L0_IPC_MEMORY,
}

_WHY_UNUSABLE = {
    _c.L0_CLOSED: "it is closed",
    _c.L0_PARENT_CLOSED: "what it was made from is closed",
    _c.L0_OTHER_PROCESS: "it was made before a fork and belongs to the parent process",
}


class Permanent:
    """A handle that lives as long as the process: a driver's or a device's. Equal and hashed by handle."""

    __slots__ = ("__weakref__", "handle")

    handle: int

    def __eq__(self, other: object) -> bool:
        return self.handle == other.handle if type(self) is type(other) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.handle)

    def __reduce__(self) -> str:
        raise TypeError(f"{type(self).__name__} cannot be pickled: a native handle means nothing elsewhere")


class Handle:
    """A native handle, owned or borrowed. Equal and hashed by handle; a context manager that closes."""

    __slots__ = ("__weakref__", "_box", "_driver_handle", "_native_kind")

    def __init__(self, box: CData, native_kind: int, driver_handle: int) -> None:
        self._box = box
        self._native_kind = native_kind
        self._driver_handle = driver_handle

    @property
    def handle(self) -> int:
        """The native handle. Raises `Closed`."""
        return _handle_of(self._box) or self._raise_closed()

    @property
    def closed(self) -> bool:
        """Whether it can no longer be used: closed itself, or what it was made from is."""
        return bool(_c.l0_box_state(self._box) != _c.L0_OPEN)

    def close(self) -> None:
        """Releases it; once, later calls do nothing.

        The native object goes at once, or with the last thing made from it. Borrowed handles are not released.
        Calls the type's destroying function and raises what it answered.
        """
        result = _c.l0_box_close(self._box)
        if result:
            check(result, _DESTROYED_BY[self._native_kind], driver=self._driver_handle)

    def held(self) -> Held:
        """A context manager that gives the handle and keeps the native object from being destroyed. Raises `Closed`."""
        return Held(self)

    def keep(self) -> object:
        """Something that keeps the native object from being destroyed as long as it lives, `close()` or not.

        Raises `Closed`.
        """
        if not _c.l0_box_hold(self._box):
            self._raise_closed()
        return ffi.gc(self._box, _c.l0_box_release)

    def require_open(self) -> None:
        """Raises `Closed` unless it can be used."""
        if self.closed:
            self._raise_closed()

    def _raise_closed(self) -> int:
        why = _WHY_UNUSABLE.get(_c.l0_box_state(self._box), "it was never made")
        raise Closed(f"{self!r} cannot be used: {why}")

    def _describe(self) -> str:
        """What the repr says beyond the type and the handle."""
        return ""

    def __repr__(self) -> str:
        parts = [f"l0py.{type(self).__name__}", self._describe(), f"at {self._box.handle:#x}"]
        state = _c.l0_box_state(self._box)
        if state != _c.L0_OPEN:
            parts.append("(closed)" if state == _c.L0_CLOSED else f"({_WHY_UNUSABLE[state]})")
        return f"<{' '.join(filter(None, parts))}>"

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is not type(self):
            return NotImplemented
        return bool(self._box.handle == other._box.handle and not self.closed and not other.closed)

    def __hash__(self) -> int:
        return hash(self._box.handle)

    def __enter__(self) -> Self:
        self.require_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except InUse:
            if error is None:
                raise
            # The pending error says more, and its traceback may be all that uses the object: the collector closes it.

    def __reduce__(self) -> str:
        raise TypeError(f"{type(self).__name__} cannot be pickled: a native handle means nothing elsewhere")


class Held:
    """A handle that cannot be destroyed before the end of the `with` block."""

    __slots__ = ("_owner",)

    def __init__(self, owner: Handle) -> None:
        self._owner = owner

    def __enter__(self) -> int:
        owner = self._owner
        if not _c.l0_box_hold(owner._box):
            owner._raise_closed()
        return int(owner._box.handle)

    def __exit__(self, *_error: object) -> None:
        _c.l0_box_release(self._owner._box)


def collected(box: CData) -> CData:
    """The same box, released by the garbage collector."""
    if box == ffi.NULL:
        raise OutOfMemory("there is no host memory for a handle")
    return ffi.gc(box, _drop)


def new_box(native_kind: int, parent: Handle | None = None) -> CData:
    """A box without a handle yet: the creator sets `.handle` when the native call has succeeded. Raises `Closed`."""
    box = collected(_c.l0_box_new(native_kind, ffi.NULL if parent is None else parent._box))
    if box.result and parent is not None:
        parent._raise_closed()
    return box


def create(
    native_kind: int, parent: Handle | None, function: str, *arguments: object, driver: int, size: int = 0
) -> CData:
    """A box around what `function(*arguments, &handle)` makes; `size` is what gives it back again. Raises its answer.

    The handle goes into the box itself: an interrupt right after the call must not lose it.
    """
    box = new_box(native_kind, parent)
    box.size = size
    try:
        check(getattr(lib, function)(*arguments, ffi.addressof(box, "handle")), function, driver=driver)
    except Error:
        box.handle = 0  # whatever a failing driver left there
        discard(box)
        raise
    return box


def discard(box: CData) -> None:
    """Undoes what the box stands for at once: an exception's traceback would keep it, and its parent, alive."""
    _c.l0_box_close(box)


def borrow(handle: int, parent: Handle | None, owner: object) -> CData:
    """A box around somebody else's handle: never released, and `owner` lives as long as it is used."""
    box = new_box(_c.L0_BORROWED, parent)
    box.handle = handle
    if owner is not None:
        _c.l0_box_keep(box, id(owner))
    return box


def live_objects() -> dict[str, int]:
    """Native objects that l0py owns or borrows in this process, by kind: `"context"`, `"memory"`, ..."""
    return {name: _c.l0_box_count(number) for name, number in _COUNTED.items()}
