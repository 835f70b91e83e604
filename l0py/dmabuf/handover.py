"""Descriptors from process to process: over a Unix socket, or fetched from another process.

What `send` writes before the message, in native byte order (it never leaves the machine):

    8 bytes   "l0py-fds"
    u16       version, 1
    u16       how many descriptors follow, 0 to 253
    u32       how many bytes of message follow
    for each descriptor, 32 bytes:
      u64     kind: 0 other, 1 dma_buf, 2 memfd, 3 shm, 4 file, 5 sync_file
      u64     size in bytes
      u64     st_dev
      u64     st_ino

The message comes next. All descriptors travel with the first byte.
"""

from __future__ import annotations

import array
import errno
import os
import struct
from typing import TYPE_CHECKING, Any

from . import _kernel
from .fd import Description, Fd, adopt, number_of
from .sync_file import SyncFile

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable

    from .fd import HasFileno

__all__ = ["allow_fetch", "fetch", "receive", "send"]

#: What the kernel passes in one message at most (SCM_MAX_FD).
_MOST_FDS = 253
_NUMBER = array.array("i").itemsize

_MAGIC, _VERSION = b"l0py-fds", 1
_HEADER = struct.Struct("=8sHHI")
_RECORD = struct.Struct("=QQQQ")
_KINDS = ("other", "dma_buf", "memfd", "shm", "file", "sync_file")

#: What the kernel's int holds: a larger number would be cut off to another one.
_LARGEST = (1 << 31) - 1

_YAMA = "/proc/sys/kernel/yama/ptrace_scope"


def send(
    connection: socket.socket,
    fds: int | HasFileno | Iterable[int | HasFileno] = (),
    message: bytes = b"",
    *,
    raw: bool = False,
) -> None:
    """Sends descriptors over a Unix socket (SCM_RIGHTS), up to 253, with what they are, and a message.

    They stay the sender's: it may close them at once. `raw` sends descriptors and message alone, for who knows nothing
    of l0py; then both are needed. When it fails in the middle of a stream, the connection is of no use any more. Calls
    sendmsg(2). Raises `ValueError`, `TypeError`, `OSError`.
    """
    from socket import SCM_RIGHTS, SOL_SOCKET  # here, because it takes longer than all the rest of the import

    _require_unix(connection)
    if isinstance(message, str):
        raise TypeError("message must be bytes, not str: encode() it")
    numbers = _numbers(fds)
    if raw and not message:
        raise ValueError("descriptors travel only with a message of at least one byte")
    if len(numbers) > _MOST_FDS or (raw and not numbers):
        raise ValueError(f"{len(numbers)} descriptors: 1 to {_MOST_FDS} can be sent in one message")
    if not numbers and not message:
        raise ValueError("there is nothing to send: no descriptor, no message")
    data = message if raw else _describe(numbers, message)
    rights = [(SOL_SOCKET, SCM_RIGHTS, array.array("i", numbers))] if numbers else []
    sent = connection.sendmsg([data], rights)
    if sent < len(data):  # a stream socket took a part; the descriptors went with its first byte
        connection.sendall(memoryview(data)[sent:])


def receive(
    connection: socket.socket, count: int = 1, size: int = 4096, *, raw: bool = False
) -> tuple[bytes, list[Fd]]:
    """A message of up to `size` bytes and the up to `count` descriptors that came with it, owned and close-on-exec.

    Each descriptor is what its sender said it is: the same kind, size and buffer. Sync files come as `SyncFile`. Both
    are empty when the other side is gone. `raw` takes what somebody sent who knows nothing of l0py, and believes it; on
    a stream socket a message then has no end of its own.

    Calls recvmsg(2). Raises `ValueError` when more came than was asked for, when `send` did not send it, and when a
    descriptor is not what was said; `ConnectionResetError` when the sender ended in the middle; `OSError`. Nothing is
    leaked then, but the rest of the message may be lost, and the connection is of no use any more.
    """
    _require_unix(connection)
    if not 0 <= count <= _MOST_FDS or size < 0:
        raise ValueError(f"{count} descriptors and {size} bytes: 0 to {_MOST_FDS} descriptors can be received")
    fds: list[Fd] = []
    try:
        if raw:
            return _receive_some(connection, size, count, fds), fds
        return _receive_described(connection, count, size, fds), fds
    except BaseException:
        for fd in fds:
            fd.close()
        raise


def _numbers(fds: Any) -> list[int]:
    """Of one descriptor or of several."""
    one = isinstance(fds, int) or hasattr(fds, "fileno")
    return [_open_number(fd) for fd in ([fds] if one else fds)]


def _open_number(fd: int | HasFileno) -> int:
    number = number_of(fd)
    try:
        os.fstat(number)
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}: {number}") from None
    return number


def _require_unix(connection: socket.socket) -> None:
    from socket import AF_UNIX

    _kernel.require()
    if connection.family != AF_UNIX:
        raise ValueError(f"descriptors travel over Unix sockets alone, not over {connection.family!r}")


def _describe(numbers: list[int], message: bytes) -> bytes:
    pieces = [_HEADER.pack(_MAGIC, _VERSION, len(numbers), len(message))]
    for number in numbers:
        kind, *rest = Description.of(number)
        pieces.append(_RECORD.pack(_KINDS.index(kind), *rest))
    return b"".join([*pieces, message])


def _receive_some(connection: socket.socket, size: int, count: int, fds: list[Fd]) -> bytes:
    """One recvmsg() of somebody who sends as he likes."""
    from socket import MSG_CTRUNC, MSG_TRUNC

    message, flags = _recvmsg(connection, size, count, fds)
    if len(fds) < count and flags & MSG_CTRUNC:
        raise _none_left()
    if len(fds) > count or flags & (MSG_CTRUNC | MSG_TRUNC):
        raise _more(count, size)
    return message


def _receive_described(connection: socket.socket, count: int, size: int, fds: list[Fd]) -> bytes:
    from socket import MSG_CTRUNC, MSG_TRUNC, SOCK_STREAM

    # The type may have SOCK_NONBLOCK in it. A stream is read piece by piece, for the next message may be there too.
    stream = connection.type & 0xF == SOCK_STREAM
    room = _HEADER.size + (0 if stream else count * _RECORD.size + size)
    data, flags = _recvmsg(connection, room, count, fds)
    if not data:
        return b""
    if not data.startswith(_MAGIC[: len(data)]):
        raise ValueError("what arrived is no message of send(): receive(raw=True) takes it as it is")
    if stream:
        data += _receive_rest(connection, _HEADER.size - len(data))
    elif len(data) < _HEADER.size:
        raise ValueError(f"a message of {len(data)} bytes arrived, which is less than its header")
    _, version, announced, length = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise ValueError(f"the sender writes version {version} of the header, this l0py reads {_VERSION}")
    if announced > count or length > size or flags & MSG_TRUNC:
        raise _more(count, size)
    if len(fds) != announced:
        if flags & MSG_CTRUNC and len(fds) < announced:
            raise _none_left()
        raise ValueError(f"{len(fds)} descriptors arrived, their sender announced {announced}")
    end = _HEADER.size + announced * _RECORD.size
    if stream:
        data += _receive_rest(connection, end + length - len(data))
    if len(data) != end + length:
        raise ValueError(f"{len(data)} bytes arrived, their sender announced {end + length}")
    for index, (kind, *rest) in enumerate(_RECORD.iter_unpack(data[_HEADER.size : end])):
        _check(index, kind, rest, fds)
    return data[end:]


def _check(index: int, kind: int, rest: list[int], fds: list[Fd]) -> None:
    """The descriptor must be what was said about it; a sync file becomes a SyncFile."""
    if kind >= len(_KINDS):
        raise ValueError(f"descriptor {index}: its sender calls it kind {kind}, which is none")
    try:
        Description(_KINDS[kind], *rest).require(fds[index].fileno())
    except ValueError as error:
        raise ValueError(f"descriptor {index}: {error}") from None
    if _KINDS[kind] == "sync_file":
        fds[index] = adopt(SyncFile, fds[index].detach())


def _recvmsg(connection: socket.socket, size: int, count: int, fds: list[Fd]) -> tuple[bytes, int]:
    """recvmsg(); the descriptors are owned before anything else happens. Returns the bytes and flags."""
    from socket import CMSG_SPACE, MSG_CMSG_CLOEXEC, SCM_RIGHTS, SOL_SOCKET

    message, ancillary, flags, _ = connection.recvmsg(size, CMSG_SPACE(count * _NUMBER), MSG_CMSG_CLOEXEC)
    numbers = array.array("i")
    for level, kind, data in ancillary:
        if level == SOL_SOCKET and kind == SCM_RIGHTS:
            numbers.frombytes(data[: len(data) - len(data) % _NUMBER])
    fds.extend(adopt(Fd, number) for number in numbers)
    return message, flags


def _receive_rest(connection: socket.socket, size: int) -> bytes:
    """Exactly so many bytes of a stream."""
    pieces: list[bytes] = []
    while size > 0:
        piece = connection.recv(min(size, 1 << 20))
        if not piece:
            raise ConnectionResetError(errno.ECONNRESET, "the sender ended in the middle of a message")
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _more(count: int, size: int) -> ValueError:
    return ValueError(f"more arrived than the {count} descriptors and {size} bytes that were asked for")


def _none_left() -> OSError:
    return OSError(
        errno.EMFILE,
        "not all descriptors arrived: this process has no more free ones (RLIMIT_NOFILE), "
        "or a security module refused them",
    )


def fetch(pid: int, fd: int) -> Fd:
    """Another process's descriptor, by its number there, as one of our own; the other process is not asked.

    That takes the right to trace it: the same user and no more restrictions, or root. Where Yama restricts tracing
    (most desktops) the other process allows it with `allow_fetch`. Calls pidfd_open and pidfd_getfd (Linux 5.6).
    Raises `ProcessLookupError`, `PermissionError`, `OSError`.
    """
    if not 0 <= fd <= _LARGEST:
        raise OSError(errno.EBADF, f"no process has a file descriptor {fd}")
    if not 0 < pid <= _LARGEST:
        raise ProcessLookupError(errno.ESRCH, f"there is no process {pid}")
    try:
        process = adopt(Fd, _kernel.syscall(_kernel.PIDFD_OPEN, pid, 0))
    except OSError as error:
        raise _fetch_error(error, pid, fd) from None
    with process:
        try:
            return adopt(Fd, _kernel.syscall(_kernel.PIDFD_GETFD, process.fileno(), fd, 0))
        except OSError as error:
            raise _fetch_error(error, pid, fd) from None


def allow_fetch(pid: int | None = None) -> bool:
    """Lets process `pid`, or every process of this user, `fetch` descriptors of this one, though Yama restricts that.

    One permission at a time: a later call replaces the former. False where there is no Yama, and nothing to allow.
    Calls prctl(PR_SET_PTRACER). Raises `OSError`.
    """
    _kernel.require()
    if pid is not None and not 0 < pid <= _LARGEST:
        raise ValueError(f"{pid} is no process's id")
    if not os.path.exists(_YAMA):  # noqa: PTH110
        return False
    _kernel.prctl(_kernel.PR_SET_PTRACER, _kernel.PR_SET_PTRACER_ANY if pid is None else pid)
    return True


def _fetch_error(error: OSError, pid: int, fd: int) -> OSError:
    code = error.errno or 0
    if code == errno.EPERM:
        return PermissionError(code, f"this process may not trace process {pid}, so it gets no descriptor: {_reason()}")
    if code == errno.EBADF:
        return OSError(code, f"process {pid} has no file descriptor {fd}")
    if code == errno.ESRCH:
        return ProcessLookupError(code, f"there is no process {pid}, or it has just ended")
    if code == errno.ENOSYS:
        return OSError(code, "this kernel cannot fetch descriptors of other processes, Linux 5.6 is the first")
    return OSError(code, f"fetching file descriptor {fd} of process {pid}: {error.strerror}")


def _reason() -> str:
    try:
        with open(_YAMA, encoding="ascii") as file:  # noqa: PTH123
            scope = int(file.read())
    except OSError:
        scope = 0
    restricted = {
        1: f"it is to call allow_fetch({os.getpid()}) ({_YAMA} is 1)",
        2: f"only root may ({_YAMA} is 2)",
        3: f"nobody may ({_YAMA} is 3)",
    }
    return restricted.get(scope, "it belongs to another user, has more rights, or may not be dumped")
