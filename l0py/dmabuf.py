"""Buffers behind file descriptors: owned, and sent between processes. Needs no driver.

A dma-buf is memory that the kernel shares by descriptor; a memfd behaves the same for everything here.
"""

from __future__ import annotations

import array
import fcntl
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["Fd", "receive", "send"]

#: What the kernel passes in one message at most (SCM_MAX_FD).
_MOST_FDS = 253


class Fd:
    """A file descriptor that is owned: closed by `close()`, the `with` block, or the garbage collector."""

    __slots__ = ("__weakref__", "_fd")

    def __init__(self, fd: int) -> None:
        """Takes the descriptor over and makes it close-on-exec. Raises `OSError` when it is not open."""
        self._fd = -1
        os.set_inheritable(fd, False)
        self._fd = fd

    @classmethod
    def duplicate(cls, fd: int | Fd) -> Fd:
        """A new descriptor for the same buffer; the given one stays the caller's. Raises `OSError`."""
        number = fd if isinstance(fd, int) else fd.fileno()
        return cls(fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 0))

    def fileno(self) -> int:
        """The descriptor's number, still owned here. Raises `ValueError` once it is closed or detached."""
        if self._fd < 0:
            raise ValueError("the file descriptor is closed")
        return self._fd

    @property
    def closed(self) -> bool:
        """Whether it was closed or detached."""
        return self._fd < 0

    @property
    def size(self) -> int:
        """The buffer's size in bytes; 0 for what is no buffer."""
        return buffer_size(self.fileno())

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode: equal for all descriptors of one buffer, in every process."""
        status = os.fstat(self.fileno())
        return status.st_dev, status.st_ino

    def detach(self) -> int:
        """Hands the descriptor over to the caller, who closes it."""
        number = self.fileno()
        self._fd = -1
        return number

    def close(self) -> None:
        """Closes it; once, later calls do nothing."""
        number, self._fd = self._fd, -1
        if number >= 0:
            os.close(number)

    def __enter__(self) -> Self:
        self.fileno()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            self.close()

    def __reduce__(self) -> str:
        raise TypeError("a Fd cannot be copied or pickled, both would close it: see Fd.duplicate() and send()")

    def __repr__(self) -> str:
        if self.closed:
            return "<l0py.dmabuf.Fd (closed)>"
        try:
            return f"<l0py.dmabuf.Fd {self._fd}, {self.size} bytes>"
        except OSError:  # somebody closed it by its number
            return f"<l0py.dmabuf.Fd {self._fd}, not open>"


def buffer_size(fd: int) -> int:
    """The size of the buffer behind a descriptor; 0 for what has none. Raises `OSError` when it is not open."""
    size = os.fstat(fd).st_size
    if size:
        return size
    try:  # dma-bufs of old kernels tell their size by seeking alone, and can be set back only to the start
        size = os.lseek(fd, 0, os.SEEK_END)
        os.lseek(fd, 0, os.SEEK_SET)
    except OSError:
        return 0
    return size


def send(connection: socket.socket, fds: int | Fd | Iterable[int | Fd], message: bytes = b"\0") -> None:
    """Sends descriptors over a Unix socket (SCM_RIGHTS), with a message of at least one byte.

    They stay the sender's: it may close them at once. Raises `ValueError`, `OSError`.
    """
    from socket import SCM_RIGHTS, SOL_SOCKET  # here, because it takes longer than all the rest of the import

    several = [fds] if isinstance(fds, (int, Fd)) else list(fds)
    numbers = [fd if isinstance(fd, int) else fd.fileno() for fd in several]
    if not message:
        raise ValueError("descriptors travel only with a message of at least one byte")
    if not 0 < len(numbers) <= _MOST_FDS:
        raise ValueError(f"{len(numbers)} descriptors: 1 to {_MOST_FDS} can be sent in one message")
    rights = (SOL_SOCKET, SCM_RIGHTS, array.array("i", numbers))
    sent = connection.sendmsg([message], [rights])
    if sent < len(message):  # a stream socket took a part; the descriptors went with its first byte
        connection.sendall(message[sent:])


def receive(connection: socket.socket, count: int = 1, size: int = 4096) -> tuple[bytes, list[Fd]]:
    """A message of up to `size` bytes and the descriptors that came with it, owned and close-on-exec.

    The message is empty when the other side is gone. Raises `OSError`, and `ValueError` when more than `count`
    descriptors came or the message was cut short; nothing is leaked then.
    """
    from socket import CMSG_SPACE, MSG_CMSG_CLOEXEC, MSG_CTRUNC, MSG_TRUNC, SCM_RIGHTS, SOL_SOCKET

    room = CMSG_SPACE(count * array.array("i").itemsize)
    message, ancillary, flags, _ = connection.recvmsg(size, room, MSG_CMSG_CLOEXEC)
    numbers = array.array("i")
    for level, kind, data in ancillary:
        if level == SOL_SOCKET and kind == SCM_RIGHTS:
            numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
    fds = [Fd(number) for number in numbers]
    if len(fds) > count or flags & (MSG_CTRUNC | MSG_TRUNC):
        for fd in fds:
            fd.close()
        raise ValueError(f"more arrived than the {count} descriptors and {size} bytes that were asked for")
    return message, fds
