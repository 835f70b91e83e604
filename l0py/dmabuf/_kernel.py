"""The Linux kernel's side: numbers of its calls, and the functions that make them. Imports anywhere, works on Linux."""

from __future__ import annotations

import errno
import os
import struct
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING or sys.platform != "win32":
    import fcntl

#: Where the devices are that make dma-bufs.
HEAPS, UDMABUF = "/dev/dma_heap", "/dev/udmabuf"

_IS_LINUX = sys.platform.startswith("linux")

# include/uapi/linux/dma-buf.h, sync_file.h, dma-heap.h, udmabuf.h
DMA_BUF_SYNC = 0x40086200
DMA_BUF_SET_NAME = 0x40086201
DMA_BUF_EXPORT_SYNC_FILE = 0xC0086202
DMA_BUF_IMPORT_SYNC_FILE = 0x40086203
SYNC_MERGE = 0xC0303E03
SYNC_FILE_INFO = 0xC0383E04
DMA_HEAP_ALLOC = 0xC0184800
UDMABUF_CREATE = 0x40187542

SYNC_START, SYNC_END = 0, 4
#: Who the CPU or a device is to a buffer; bits that are the same for windows and for fences.
ACCESS = {"read": 1, "write": 2, "read_write": 3}

#: fcntl's F_SEAL_...
SEALS = {"seal": 1, "shrink": 2, "grow": 4, "write": 8, "future_write": 16, "exec": 32}

# The structures, in native byte order and with the padding written out.
SYNC = struct.Struct("=Q")  # flags
SYNC_FILE = struct.Struct("=Ii")  # flags, fd
MERGE = struct.Struct("=32siiII")  # name, fd2, fence, flags, pad
FILE_INFO = struct.Struct("=32siIIIQ")  # name, status, flags, num_fences, pad, sync_fence_info
FENCE_INFO = struct.Struct("=32s32siIQ")  # obj_name, driver_name, status, flags, timestamp_ns
HEAP_ALLOC = struct.Struct("=QIIQ")  # len, fd, fd_flags, heap_flags
CREATE = struct.Struct("=IIQQ")  # memfd, flags, offset, size

#: System calls have these numbers on every architecture that l0py has wheels for.
PIDFD_OPEN, PIDFD_GETFD = 434, 438
PR_SET_PTRACER = 0x59616D61
PR_SET_PTRACER_ANY = (1 << 64) - 1


def require() -> None:
    """Raises OSError where there is no Linux."""
    if not _IS_LINUX:
        raise OSError(errno.ENOSYS, f"buffers behind file descriptors are Linux's: {sys.platform} has none")


def ioctl(fd: int, number: int, argument: bytearray) -> int:
    """The call's own answer; `argument` gets what the kernel writes into it. Raises OSError.

    It is made again when a signal or a busy buffer came between, as the kernel asks for.
    """
    require()
    while True:
        with suppress(InterruptedError, BlockingIOError):
            return _ioctl(fd, number, argument)


def _ioctl(fd: int, number: int, argument: bytearray) -> int:
    """The one place where this package asks a driver."""
    result: int = fcntl.ioctl(fd, number, argument, True)
    return result


def duplicate(fd: int) -> int:
    """A close-on-exec duplicate. Raises OSError."""
    require()
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 0)


def seals(fd: int) -> int | None:
    """F_GET_SEALS; None for what can have no seals: everything but memfds and files in shared memory."""
    require()
    try:
        return fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return None


def add_seals(fd: int, bits: int) -> None:
    """F_ADD_SEALS. Raises OSError."""
    require()
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, bits)


def syscall(number: int, *arguments: int) -> int:
    """A system call that Python has no function for. Raises OSError."""
    return _libc("syscall", number, *arguments)


def prctl(option: int, argument: int) -> None:
    """With one argument. Raises OSError."""
    _libc("prctl", option, argument, 0, 0, 0)


def _libc(name: str, *arguments: int) -> int:
    require()
    import ctypes  # here, because it takes longer than all the rest of the import

    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    function.restype = ctypes.c_int  # both answer with a descriptor, 0 or -1
    result: int = function(*map(ctypes.c_ulong, arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def link(fd: int) -> str:
    """What /proc calls the open file; empty where /proc is not mounted."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 - pathlib takes longer than all the rest, too
    except FileNotFoundError:
        return ""
