"""Memory opened by other processes through Level Zero's own IPC handles: 64 bytes, some with a descriptor."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from . import external, lib
from ._ffi import ffi
from ._ffi import lib as _c
from .dmabuf import Fd
from .errors import Closed, Error, InvalidArgument, NotSupported, check
from .handles import CData, Handle, create, discard, new_box

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Buffer, Self

    from .context import Context
    from .device import Device
    from .external import HasFileno

__all__ = ["IpcHandle"]

_BYTES = 64

FLAGS = {
    "cached": lib.ZE_IPC_MEMORY_FLAG_BIAS_CACHED,
    "uncached": lib.ZE_IPC_MEMORY_FLAG_BIAS_UNCACHED,
}


class IpcHandle:
    """What another process opens a memory by: from `Memory.ipc_handle()`, or received.

    `bytes(handle)` are the 64 bytes; `size` is the memory's in bytes, 0 where nothing told it. Drivers fetch the memory
    from the process that the bytes name, which has to permit that where the system restricts it
    (`dmabuf.allow_fetch`). Older ones (before API 1.15) need the descriptor of `to_fd()` to come along; what
    `multiprocessing` pickles has all that is needed. The memory lives on until `close()`. A context manager.
    """

    __slots__ = ("__weakref__", "_box", "_context", "_data", "_fd", "_needs_fd", "size")

    _box: CData | None  # of a handle that was got here: it is given back
    _context: Context | None
    _data: CData | None  # the 64 bytes
    _fd: Fd | None  # what came along, or goes along
    _needs_fd: bool | None  # whether the bytes mean nothing without it; None: nobody told
    size: int

    def __init__(self, data: Buffer, fd: HasFileno | int | None = None, size: int = 0) -> None:
        """A handle received as its 64 bytes, and the descriptor that came along, which stays the caller's.

        Raises `InvalidArgument` for any other number of bytes, `BadDescriptor`.
        """
        received = bytes(data)
        if len(received) != _BYTES:
            raise InvalidArgument(f"{len(received)} bytes are no IPC handle, which has {_BYTES}")
        self._set_up(_native(received), None if fd is None else Fd.duplicate(external.descriptor(fd)), size, None)

    def _set_up(self, data: CData | None, fd: Fd | None, size: int, needs_fd: bool | None) -> None:
        self._box = self._context = None
        self._data, self._fd, self._needs_fd, self.size = data, fd, needs_fd, size

    @classmethod
    def from_fd(cls, fd: HasFileno | int, size: int = 0) -> IpcHandle:
        """A handle received as a descriptor alone, which stays the caller's.

        It is converted when it is opened (zeMemGetIpcHandleFromFileDescriptorExp): drivers may refuse descriptors that
        they did not give out in this very process. Raises `BadDescriptor`.
        """
        handle: IpcHandle = object.__new__(cls)
        handle._set_up(None, Fd.duplicate(external.descriptor(fd)), size, False)
        return handle

    def to_fd(self) -> Fd:
        """A descriptor that stands for the handle, owned by the caller.

        Raises `NotSupported` where the driver makes none, `Closed`. Calls zeMemGetFileDescriptorFromIpcHandleExp.
        """
        self._require_open()
        if self._fd is None:
            self._fd = self._made_fd()
        return Fd.duplicate(self._fd)

    def _made_fd(self) -> Fd:
        if self._context is None or self._data is None:
            raise NotSupported("only the process that got an IPC handle can make a descriptor of it")
        function, out = "zeMemGetFileDescriptorFromIpcHandleExp", ffi.new("uint64_t*")
        with self._context.held() as context:
            result = lib.zeMemGetFileDescriptorFromIpcHandleExp(context, self._data[0], out)
            check(result, function, driver=self._context._driver_handle)
            return Fd.duplicate(int(out[0]))  # what it tells is the driver's own

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._data is None and self._fd is None

    def close(self) -> None:
        """Gives it back; once, later calls do nothing. What was opened by it stays open.

        Calls zeMemPutIpcHandle where the driver has it, in the process that got the handle.
        """
        fd, self._fd, self._data = self._fd, None, None
        if fd is not None:
            fd.close()
        if self._box is not None and self._context is not None:
            check(_c.l0_box_close(self._box), "zeMemPutIpcHandle", driver=self._context._driver_handle)

    def _require_open(self) -> None:
        if self.closed:
            raise Closed(f"{self!r} cannot be used: it is closed")

    def __bytes__(self) -> bytes:
        self._require_open()
        if self._data is None:
            raise NotSupported("an IPC handle that came as a descriptor has no bytes: to_fd() sends it on")
        return bytes(ffi.buffer(self._data))

    def __reduce__(self) -> Any:
        self._require_open()
        if self._fd is None:
            with suppress(NotSupported):
                self._fd = self._made_fd()
        return _received, (None if self._data is None else bytes(self), self._fd, self.size, self._needs_fd)

    def __repr__(self) -> str:
        what = "descriptor" if self._data is None else "64 bytes"
        size = f" of {self.size} bytes of memory" if self.size else ""
        return f"<l0py.IpcHandle{size} ({'closed' if self.closed else what})>"

    def __enter__(self) -> Self:
        self._require_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _received(data: bytes | None, fd: Fd | None, size: int, needs_fd: bool | None) -> IpcHandle:
    """A handle that was pickled in another process."""
    handle: IpcHandle = object.__new__(IpcHandle)
    handle._set_up(None if data is None else _native(data), fd, size, needs_fd)
    return handle


def _native(data: bytes) -> CData:
    return ffi.new("ze_ipc_mem_handle_t*", {"data": data})


def get(memory: Handle, context: Context, size: int) -> IpcHandle:
    """The IPC handle of a memory. Calls zeMemGetIpcHandle."""
    data = ffi.new("ze_ipc_mem_handle_t*")
    box = new_box(_c.L0_IPC_HANDLE, memory)
    _c.l0_box_keep(box, id(data))
    try:
        with memory.held() as address, context.held() as native:
            here = f"for the memory at {address:#x}; export() shares memory by a descriptor"
            box.handle = lib.address(data)  # before the call: an interrupt right after it must not lose the handle
            result = lib.zeMemGetIpcHandle(native, address, data)
            check(result, "zeMemGetIpcHandle", driver=context._driver_handle, here=here)
    except Error:
        box.handle = 0
        discard(box)
        raise
    handle: IpcHandle = object.__new__(IpcHandle)
    number = external.ipc_descriptor(context.driver, bytes(ffi.buffer(data)))
    handle._set_up(data, None if number is None else Fd.duplicate(number), size, number is not None)
    handle._box, handle._context = box, context
    return handle


def open_memory(context: Handle, device: Device, handle: IpcHandle, flags: int) -> CData:
    """A box of the memory that a handle stands for: by its bytes, else by its descriptor.

    Raises what zeMemOpenIpcHandle answered.
    """
    handle._require_open()
    driver, fd = device.driver.handle, handle._fd

    def open_by(data: CData) -> CData:
        with context.held() as native:
            return create(
                _c.L0_IPC_MEMORY, context, "zeMemOpenIpcHandle", native, device.handle, data[0], flags, driver=driver
            )

    def open_with(lent: int) -> CData:
        return open_by(_native(external.with_descriptor(bytes(handle), lent)))

    def open_converted(lent: int) -> CData:
        data = ffi.new("ze_ipc_mem_handle_t*")
        with context.held() as native:
            result = lib.zeMemGetIpcHandleFromFileDescriptorExp(native, lent, data)
            check(result, "zeMemGetIpcHandleFromFileDescriptorExp", driver=driver)
            try:
                return open_by(data)
            finally:
                lib.zeMemPutIpcHandle(native, data[0])

    needs_fd = external.ipc_needs_descriptor(device.driver) if handle._needs_fd is None else handle._needs_fd
    if needs_fd and handle._box is None:
        if fd is None:
            raise NotSupported(
                f"the bytes of {device.name}'s IPC handles mean nothing without the descriptor of to_fd(): "
                "send both, IpcHandle(data, fd) puts them together"
            )
        return external.lend(fd.fileno(), None, open_with)
    if handle._data is None:
        assert fd is not None
        return external.lend(fd.fileno(), None, open_converted)
    try:
        return open_by(handle._data)
    except InvalidArgument as error:
        if fd is None or handle._box is not None:
            raise
        try:
            return external.lend(fd.fileno(), None, open_converted)
        except Error:
            raise error from None
