"""Sync files: fences of devices behind a descriptor, exported from dma-bufs and put into them."""

from __future__ import annotations

import array
import errno
import os
import select
import time
from typing import TYPE_CHECKING, NamedTuple

from . import _kernel
from .fd import Fd, adopt, kind_of, number_of

if TYPE_CHECKING:
    from .fd import HasFileno

__all__ = ["Fence", "SyncFile", "SyncFileInfo", "export_sync_file", "import_sync_file", "merge"]

#: poll() takes milliseconds in an int.
_LONGEST_POLL = (1 << 31) - 1


class Fence(NamedTuple):
    """A fence of a sync file: `status` is 1 once it is signalled, 0 before, a negative errno when it failed.

    `timestamp` is when that happened, in nanoseconds of the monotonic clock.
    """

    name: str
    driver: str
    status: int
    timestamp: int


class SyncFileInfo(NamedTuple):
    """A sync file's name, its status (as a fence's) and its fences."""

    name: str
    status: int
    fences: tuple[Fence, ...]


class SyncFile(Fd):
    """A sync file, owned: it is signalled when all of its fences are."""

    __slots__ = ()

    def __init__(self, fd: int) -> None:
        """Takes the descriptor over. Raises `OSError` when it is not open or no sync file; it is the caller's then."""
        _require_sync_file(number_of(fd))
        super().__init__(fd)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it is signalled, with an error or without; False when the timeout (seconds) came first.

        Calls poll(2). Raises `ValueError` for a negative timeout.
        """
        number = self.fileno()
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"cannot wait for {timeout} seconds")
        end = None if timeout is None else time.monotonic() + timeout
        poller = select.poll()
        poller.register(number, select.POLLIN)
        while True:
            left = None if end is None else max(0.0, end - time.monotonic())
            events = poller.poll(None if left is None else min(left * 1000, _LONGEST_POLL))
            if events:
                if events[0][1] & select.POLLNVAL:
                    raise OSError(errno.EBADF, f"{os.strerror(errno.EBADF)}: {number}")
                return True
            if left is not None and left * 1000 <= _LONGEST_POLL:
                return False

    @property
    def signalled(self) -> bool:
        """Whether it is signalled by now."""
        return self.wait(0)

    @property
    def info(self) -> SyncFileInfo:
        """Its name, status and fences. Calls SYNC_IOC_FILE_INFO: for the number of fences, then for them."""
        number, layout = self.fileno(), _kernel.FILE_INFO
        answer = bytearray(layout.size)
        _kernel.ioctl(number, _kernel.SYNC_FILE_INFO, answer)
        count = layout.unpack(answer)[3]
        fences = array.array("B", bytes(count * _kernel.FENCE_INFO.size))
        answer[:] = layout.pack(b"", 0, 0, count, 0, fences.buffer_info()[0])
        _kernel.ioctl(number, _kernel.SYNC_FILE_INFO, answer)
        name, status, *_ = layout.unpack(answer)
        return SyncFileInfo(
            _text(name),
            status,
            tuple(
                Fence(_text(fence), _text(driver), state, timestamp)
                for fence, driver, state, _, timestamp in _kernel.FENCE_INFO.iter_unpack(fences)
            ),
        )

    def __repr__(self) -> str:
        return f"<l0py.dmabuf.SyncFile {'(closed)' if self.closed else self._fd}>"


def export_sync_file(buffer: int | HasFileno, access: str = "read_write") -> SyncFile:
    """What must be waited for before a dma-buf is accessed, as it stands now.

    To "read" is to wait for writers, to "write" (or both) for readers, too. Calls DMA_BUF_IOCTL_EXPORT_SYNC_FILE.
    Raises `ValueError`, `OSError`: for what is no dma-buf, and before Linux 6.0.
    """
    number, flags = number_of(buffer), _flags(access)
    answer = bytearray(_kernel.SYNC_FILE.pack(flags, -1))
    _ask_dma_buf(number, _kernel.DMA_BUF_EXPORT_SYNC_FILE, answer)
    return adopt(SyncFile, _kernel.SYNC_FILE.unpack(answer)[1])


def import_sync_file(buffer: int | HasFileno, sync_file: int | HasFileno, access: str = "read_write") -> None:
    """Makes everybody who uses a dma-buf wait for a sync file too: as for somebody who reads it, or writes it.

    Both descriptors stay the caller's. Calls DMA_BUF_IOCTL_IMPORT_SYNC_FILE. Raises what `export_sync_file` raises.
    """
    number, flags, fence = number_of(buffer), _flags(access), number_of(sync_file)
    _require_sync_file(fence)
    _ask_dma_buf(number, _kernel.DMA_BUF_IMPORT_SYNC_FILE, bytearray(_kernel.SYNC_FILE.pack(flags, fence)))


def merge(name: str, a: int | HasFileno, b: int | HasFileno) -> SyncFile:
    """A new sync file that is signalled when both are; `name` has at most 31 bytes. Calls SYNC_IOC_MERGE.

    Raises `ValueError`, `OSError`.
    """
    encoded = os.fsencode(name)
    if len(encoded) > 31 or b"\0" in encoded:
        raise ValueError(f"{name!r}: a sync file's name has at most 31 bytes, and no zero among them")
    numbers = number_of(a), number_of(b)
    for number in numbers:
        _require_sync_file(number)
    answer = bytearray(_kernel.MERGE.pack(encoded, numbers[1], -1, 0, 0))
    _kernel.ioctl(numbers[0], _kernel.SYNC_MERGE, answer)
    return adopt(SyncFile, _kernel.MERGE.unpack(answer)[2])


def _flags(access: str) -> int:
    if access not in _kernel.ACCESS:
        raise ValueError(f"access is 'read', 'write' or 'read_write', not {access!r}")
    return _kernel.ACCESS[access]


def _require_sync_file(number: int) -> None:
    kind = kind_of(number)
    if kind != "sync_file":
        raise OSError(errno.EINVAL, f"file descriptor {number} is no sync file (its kind: {kind})")


def _ask_dma_buf(number: int, request: int, argument: bytearray) -> None:
    try:
        _kernel.ioctl(number, request, argument)
    except OSError as error:
        if error.errno != errno.ENOTTY:
            raise
        kind = kind_of(number)
        why = "Linux 6.0 is the first that tells" if kind == "dma_buf" else f"it is no dma-buf (its kind: {kind})"
        raise OSError(errno.ENOTTY, f"file descriptor {number} has no fences: {why}") from None


def _text(field: bytes) -> str:
    return os.fsdecode(field.split(b"\0", 1)[0])
