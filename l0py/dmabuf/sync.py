"""Windows in which the CPU may touch a dma-buf."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from . import _kernel
from .fd import number_of

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from .fd import HasFileno

__all__ = ["CpuAccess", "cpu_access"]


class CpuAccess:
    """A window of CPU access, open in its `with` block. Made by `cpu_access`; may be used again, not twice at once.

    `required` says, once it was opened, whether the buffer needs windows at all: a dma-buf does.
    """

    __slots__ = ("_direction", "_fd", "_given", "required")

    def __init__(self, fd: int | HasFileno, direction: str) -> None:
        if direction not in _kernel.ACCESS:
            raise ValueError(f"CPU access is for 'read', 'write' or 'read_write', not for {direction!r}")
        self._given = fd
        self._direction = _kernel.ACCESS[direction]
        self._fd = -1
        self.required: bool | None = None

    def __enter__(self) -> Self:
        if self._fd >= 0:
            raise ValueError("the window is open already: make another one")
        # A duplicate: what was opened must be ended, even when the descriptor is closed meanwhile.
        fd = _kernel.duplicate(number_of(self._given))
        try:
            self.required = _start(fd, self._direction)
        except BaseException:
            os.close(fd)
            raise
        if self.required:
            self._fd = fd
        else:
            os.close(fd)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        try:
            _sync(fd, _kernel.SYNC_END | self._direction)
        finally:
            os.close(fd)


def cpu_access(fd: int | HasFileno, direction: str = "read_write") -> CpuAccess:
    """A window in which the CPU may use a mapped dma-buf, as long as its `with` block runs.

    `direction` is "read", "write" or "read_write". The window waits for devices that still use the buffer, and sees to
    caches; it ends when the block does, also by an exception, and even when the descriptor was closed in it. A memfd or
    file needs none and gets none: the CPU's view of it is the only one (`CpuAccess.required` is False then).

    Calls DMA_BUF_IOCTL_SYNC with START and END. Raises `ValueError` for another direction, `OSError` for what is no
    buffer and for what the kernel refuses.
    """
    return CpuAccess(fd, direction)


def _start(fd: int, direction: int) -> bool:
    """Opens a window; False when the buffer has none."""
    mode = stat.S_IFMT(os.fstat(fd).st_mode)
    if mode not in (0, stat.S_IFREG):  # a device could take the number for something else
        raise OSError(errno.EINVAL, "this descriptor is no buffer: it needs no window of CPU access")
    try:
        _sync(fd, _kernel.SYNC_START | direction)
    except OSError as error:
        if error.errno != errno.ENOTTY:
            raise
        if mode == 0:
            raise OSError(errno.EINVAL, "this descriptor is no buffer: it needs no window of CPU access") from None
        return False
    return True


def _sync(fd: int, flags: int) -> None:
    _kernel.ioctl(fd, _kernel.DMA_BUF_SYNC, bytearray(_kernel.SYNC.pack(flags)))
