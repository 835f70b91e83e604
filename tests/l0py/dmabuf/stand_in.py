"""The kernel's answers where it has no such devices, at the places where `l0py.dmabuf` asks for them.

Memfds stand in for dma-bufs, eventfds for sync files: they are real to every other call. The structures are those of
the kernel's headers, read and written here on their own.
"""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from l0py.dmabuf import _kernel

if TYPE_CHECKING:
    import pytest
    from typing_extensions import Self


class StandIn:
    """What is asked goes into `calls`: (type, number) as the header names them, with the structure's fields."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.errors: dict[int, list[int]] = {}
        self.fences: list[tuple[bytes, bytes, int, int]] = [(b"job 7", b"stand-in", 1, 123456789)]
        self.names: dict[tuple[int, int], bytes] = {}
        self._dma_bufs: set[tuple[int, int]] = set()
        self._sync_files: set[str] = set()
        self._monkeypatch = monkeypatch
        self._real, self._seals = _kernel._ioctl, _kernel.seals
        monkeypatch.setattr(_kernel, "_ioctl", self._answer)
        monkeypatch.setattr(_kernel, "seals", self._answer_seals)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def dma_buf(self, size: int = 8192) -> int:
        """A new descriptor of a new "dma-buf"."""
        fd = os.memfd_create("stand-in")
        os.ftruncate(fd, size)
        self._dma_bufs.add(self._identity(fd))
        return fd

    def sync_file(self, *, signalled: bool) -> int:
        """A new descriptor of a new "sync file": an eventfd, which is readable when it is not 0."""
        fd = os.eventfd(int(signalled), os.EFD_CLOEXEC)
        self._sync_files.add(self._event(fd))
        return fd

    def nodes(self, directory: Path) -> None:
        """/dev/dma_heap/system and /dev/udmabuf exist, in a directory of the test."""
        (directory / "dma_heap").mkdir()
        for name in ("dma_heap/system", "udmabuf"):
            (directory / name).touch()
        self._monkeypatch.setattr(_kernel, "HEAPS", str(directory / "dma_heap"))
        self._monkeypatch.setattr(_kernel, "UDMABUF", str(directory / "udmabuf"))

    def fail(self, number: int, *codes: int) -> None:
        """The next calls of that number fail, one with each errno."""
        self.errors[number] = list(codes)

    def _answer_seals(self, fd: int) -> int | None:
        return None if self._identity(fd) in self._dma_bufs else self._seals(fd)

    @staticmethod
    def _identity(fd: int) -> tuple[int, int]:
        status = os.fstat(fd)
        return status.st_dev, status.st_ino

    @staticmethod
    def _event(fd: int) -> str:
        lines = Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines()
        return next((line for line in lines if line.startswith("eventfd-id")), "")

    def _answer(self, fd: int, number: int, argument: bytearray) -> int:
        assert (number >> 16) & 0x3FFF == len(argument) or number == 0x40086201, "the number holds the structure's size"
        if self.errors.get(number) and argument != struct.pack("=Q", 1 << 32):
            code = self.errors[number].pop(0)
            raise OSError(code, os.strerror(code))
        magic = chr((number >> 8) & 0xFF)
        if magic == "b" and self._identity(fd) in self._dma_bufs:
            return self._dma_buf(fd, number & 0xFF, argument)
        if magic == ">" and self._event(fd) in self._sync_files:
            return self._sync_file(number & 0xFF, argument)
        if magic == "H" or magic == "u":
            return self._node(magic, argument)
        return self._real(fd, number, argument)

    def _dma_buf(self, fd: int, number: int, argument: bytearray) -> int:
        if number == 0:
            (flags,) = struct.unpack("=Q", argument)
            if flags & ~7 or not flags & 3:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            self.calls.append(("sync", flags))
        elif number == 1:
            self.names[self._identity(fd)] = bytes(argument)
        else:
            flags, fence = struct.unpack("=Ii", argument)
            self.calls.append(("export" if number == 2 else "import", flags, fence))
            if number == 2:
                argument[:] = struct.pack("=Ii", flags, self.sync_file(signalled=True))
        return 0

    def _sync_file(self, number: int, argument: bytearray) -> int:
        if number == 3:
            name, fd2, _, flags, pad = struct.unpack("=32siiII", argument)
            self.calls.append(("merge", name.rstrip(b"\0"), fd2, flags, pad))
            argument[:] = struct.pack("=32siiII", name, fd2, self.sync_file(signalled=True), 0, 0)
            return 0
        _, _, flags, count, pad, address = struct.unpack("=32siIIIQ", argument)
        self.calls.append(("info", flags, count, pad, bool(address)))
        if count:
            import ctypes

            data = b"".join(struct.pack("=32s32siIQ", fence, by, state, 0, at) for fence, by, state, at in self.fences)
            assert count == len(self.fences)
            ctypes.memmove(address, data, len(data))
        argument[:] = struct.pack("=32siIIIQ", b"stand-in", 1, 0, len(self.fences), 0, address)
        return 0

    def _node(self, magic: str, argument: bytearray) -> int:
        if magic == "H":
            size, fd, fd_flags, heap_flags = struct.unpack("=QIIQ", argument)
            self.calls.append(("alloc", size, fd, fd_flags, heap_flags))
            argument[:] = struct.pack("=QIIQ", size, self.dma_buf(-(-size // 4096) * 4096), fd_flags, heap_flags)
            return 0
        memfd, flags, offset, size = struct.unpack("=IIQQ", argument)
        self.calls.append(("create", os.fstat(memfd).st_size, flags, offset, size))
        return self.dma_buf(size)
