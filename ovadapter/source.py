"""What memory can be given to a tensor: l0py memory, a file descriptor or an array, seen in one way."""

from __future__ import annotations

import fcntl
import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import l0py
from l0py import dmabuf, external

from .errors import TensorMismatch

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    import numpy as np

__all__ = ["PAGE", "Source", "is_array", "is_read_only", "make_source"]

PAGE = 4096
"""OpenVINO's "standard page size": what it demands of imported addresses and sizes."""


@dataclass(frozen=True)
class Source:
    """Memory before it becomes a tensor.

    `size` is in bytes. `address` is None when only an fd is known. `pages` is the range (address, size) that may be
    imported by address: whole pages, none of which belongs to anybody else; None where there is no such range.
    `duplicate` gives a new fd of the memory, or None when it has none. `hold` keeps the memory alive and open.
    """

    description: str
    size: int
    address: int | None
    pages: tuple[int, int] | None
    writable: bool
    context: int | None
    identity: Hashable
    duplicate: Callable[[], dmabuf.Fd | None] = field(repr=False)
    hold: object = field(repr=False)

    def release(self) -> None:
        """Lets the memory be closed although a traceback still refers to this; for a tensor that was not made."""
        if isinstance(self.hold, memoryview):
            self.hold.release()


def make_source(source: Any) -> Source:
    """A `l0py.Memory`, an int fd, a `l0py.dmabuf.Fd` or a NumPy array as a Source.

    Raises TypeError for anything else, l0py.errors.BadDescriptor for an fd that is closed or no buffer, TensorMismatch
    for an array that cannot be shared, l0py.errors.Closed for closed memory.
    """
    if isinstance(source, l0py.Memory):
        return _from_memory(source)
    if isinstance(source, dmabuf.Fd) or (isinstance(source, int) and not isinstance(source, bool)):
        return _from_fd(source)
    if is_array(source):
        return _from_array(source)
    raise TypeError(
        f"memory is a l0py.Memory, an fd (int or l0py.dmabuf.Fd) or a numpy.ndarray, not {type(source).__name__}"
    )


def is_array(source: object) -> bool:
    """Whether it is a NumPy array. Imports nothing."""
    numpy = sys.modules.get("numpy")  # without it nobody can have made an array
    return numpy is not None and isinstance(source, numpy.ndarray)


def is_read_only(source: Any) -> bool:
    """Whether it is memory or an array that may not be written to."""
    if isinstance(source, l0py.Memory):
        return source.read_only
    return is_array(source) and not source.flags.writeable


def _from_memory(memory: l0py.Memory) -> Source:
    address, size = memory.address, memory.size
    host_visible = memory.kind != "device"
    # While a view of it lives, Memory.close() raises BufferError.
    hold: object = memory.view() if host_visible else memory

    def duplicate() -> dmabuf.Fd | None:
        if memory.exportable != "dma_buf":
            return None
        with memory.export() as exported:
            return _nonzero_duplicate(exported.fileno())

    return Source(
        description=f"{memory.kind} memory of {size} bytes at {address:#x}",
        size=size,
        address=address,
        pages=(address, -(-size // PAGE) * PAGE) if host_visible and address % PAGE == 0 else None,
        writable=not memory.read_only,
        context=memory.context.handle,
        # Views keep host memory where it is. Device memory may be closed, and other memory then lie at its address.
        identity=("memory", address) if host_visible else ("object", id(memory)),
        duplicate=duplicate,
        hold=hold,
    )


def _from_fd(fd: int | dmabuf.Fd) -> Source:
    number = external.descriptor(fd)
    size = external.import_size(number, None)
    status = os.fstat(number)
    return Source(
        description=f"fd {number} ({size} bytes)",
        size=size,
        address=None,
        pages=None,
        writable=True,
        context=None,
        identity=("file", status.st_dev, status.st_ino),
        duplicate=lambda: _nonzero_duplicate(number),
        hold=fd,
    )


def _nonzero_duplicate(fd: int) -> dmabuf.Fd:
    """A duplicate that is not fd 0, which OpenVINO takes for a missing handle."""
    return dmabuf.Fd(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3))


def _from_array(array: np.ndarray[Any, Any]) -> Source:
    if not array.flags.c_contiguous:
        raise TensorMismatch(f"the array of shape {array.shape} and strides {array.strides} is not C-contiguous")
    if not array.dtype.isnative:
        raise TensorMismatch(f"the array's bytes are in another order than this machine's: {array.dtype.str}")
    if array.dtype.hasobject:
        raise TensorMismatch(f"an array of {array.dtype} holds Python objects, not numbers")
    address, size = int(array.ctypes.data), int(array.nbytes)
    return Source(
        description=f"array of {size} bytes at {address:#x}",
        size=size,
        address=address,
        pages=(address, size) if address % PAGE == 0 and size % PAGE == 0 and size else None,
        writable=bool(array.flags.writeable),
        context=None,
        identity=("memory", address),
        duplicate=lambda: None,
        hold=array,
    )
