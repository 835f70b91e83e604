"""What memory can be given to a tensor: l0py memory, a file descriptor or anybody's array, seen in one way."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import l0py
from l0py import dmabuf, external

from .errors import TensorMismatch
from .shared import Shared

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from contextlib import AbstractContextManager

    import numpy as np

    from l0py.external import HasFileno
    from l0py.interop import Foreign
    from l0py.ntwin import NtHandle

    OsHandle = dmabuf.Fd | NtHandle
    """What drivers give out and OpenVINO takes: on Linux an fd, on Windows an NT handle."""

__all__ = ["PAGE", "SIZE_UNKNOWN", "Source", "handle_source", "make_source", "pages_of"]

PAGE = 4096
"""OpenVINO's "standard page size": what it demands of imported addresses and sizes."""

SIZE_UNKNOWN = 1 << 62
"""The size of what does not tell it."""


@dataclass(frozen=True)
class Source:
    """Memory before it becomes a tensor.

    `size` is in bytes. `address` is None when only an fd is known, `host_address` also when the host may not touch it.
    `host_visible` says whether it may; None where nobody tells.
    `pages` is the range (address, size) that may be imported by address: whole pages, none of which belongs to anybody
    else; None where there is no such range. `duplicate` gives a new fd of the memory (on Windows an NT handle), or None
    when it has none. `hold` keeps the memory alive and open, and `let_go` ends that. `array` is an array's shape and
    the type of its elements, as NumPy writes it ("<f4") or by the name of one that NumPy lacks ("bfloat16"); None for
    memory and fds, which are bytes.
    """

    description: str
    size: int
    address: int | None
    pages: tuple[int, int] | None
    writable: bool
    context: int | None
    identity: Hashable
    duplicate: Callable[[], AbstractContextManager[OsHandle] | None] = field(repr=False)
    hold: object = field(repr=False)
    host_visible: bool | None = True
    array: tuple[tuple[int, ...], str] | None = None
    let_go: Callable[[], object] | None = field(default=None, repr=False)

    @property
    def host_address(self) -> int | None:
        """The address, if the host may read and write there."""
        return self.address if self.host_visible else None

    def release(self) -> None:
        """Lets the memory be closed although a traceback still refers to this; for a tensor that was not made."""
        if self.let_go is not None:
            self.let_go()


def make_source(source: Any) -> Source:
    """A `l0py.Memory`, a `Shared`, an int fd, whatever has a `fileno()`, or an array as a Source; a Source as itself.

    A `l0py.ntwin.NtHandle` tells no size that could be checked, and OpenVINO checks none. An array is NumPy's, or
    whatever `l0py.interop.describe` understands. Raises TypeError for anything else, l0py.errors.BadDescriptor for an
    fd that is closed or no buffer, TensorMismatch for an array that cannot be shared, l0py.errors.Closed for closed
    memory, and what the library that made an array raises.
    """
    if isinstance(source, Source):
        return source
    if isinstance(source, Shared):
        return _from_memory(source.memory)
    if isinstance(source, l0py.Memory):
        return _from_memory(source)
    if isinstance(source, dmabuf.Fd) or (isinstance(source, int) and not isinstance(source, bool)):
        return _from_fd(source)
    ntwin = sys.modules.get("l0py.ntwin")  # without it nobody can have made a handle of its
    if ntwin is not None and isinstance(source, ntwin.NtHandle):
        return handle_source(source, SIZE_UNKNOWN, description=f"NT handle {source.handle:#x}")
    numpy = sys.modules.get("numpy")  # without it nobody can have made an array of its
    if numpy is not None and isinstance(source, numpy.ndarray):
        return _from_array(source)
    if hasattr(source, "fileno"):
        return _from_fd(source)
    return _from_foreign(source)


def pages_of(memory: l0py.Memory) -> tuple[int, int]:
    """Address and size of the pages that memory is made of, which others may import by address.

    Raises NotSupported with the reason for memory that is not made of whole pages of the host's.
    """
    if memory.kind == "device":
        raise l0py.NotSupported("the host may not touch device memory")
    if memory.kind == "shared" and memory.device is not None and not memory.device.properties.integrated:
        raise l0py.NotSupported(f"{memory.device.name} moves shared memory away from the host's pages")
    if memory.address % PAGE:
        raise l0py.NotSupported(f"{memory.address:#x} is not the start of a page of {PAGE} bytes")
    return memory.address, -(-memory.size // PAGE) * PAGE


def _from_memory(memory: l0py.Memory) -> Source:
    address, size = memory.address, memory.size
    host_visible = memory.kind != "device"
    try:
        pages = pages_of(memory)
    except l0py.NotSupported:
        pages = None
    # While a view of it lives, Memory.close() raises BufferError.
    view = memory.view() if host_visible else None

    def duplicate() -> OsHandle | None:
        if memory.exportable == "opaque_win32":
            return memory.export()
        if memory.exportable != "dma_buf":
            return None
        with memory.export() as exported:
            return _nonzero_duplicate(exported.fileno())

    return Source(
        description=f"{memory.kind} memory of {size} bytes at {address:#x}",
        size=size,
        address=address,
        pages=pages,
        writable=not memory.read_only,
        context=memory.context.handle,
        # Views keep host memory where it is. Device memory may be closed, and other memory then lie at its address.
        identity=("memory", address) if host_visible else ("object", id(memory)),
        duplicate=duplicate,
        hold=view or memory,
        host_visible=host_visible,
        let_go=None if view is None else view.release,
    )


def _from_fd(fd: int | HasFileno) -> Source:
    number = external.descriptor(fd)
    if dmabuf.kind_of(number) == "file":
        raise l0py.BadDescriptor(
            f"fd {number} is a file on a disk, which devices cannot reach: read it into memory of l0py's, "
            "or map it and give its pages as an array",
            errno=errno.EINVAL,
        )
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


def handle_source(handle: OsHandle, size: int, *, description: str) -> Source:
    """Memory behind a handle that drivers gave out, which must stay open only until it is imported."""
    if isinstance(handle, dmabuf.Fd):
        return replace(_from_fd(handle), description=description)
    return Source(
        description=description,
        size=size,
        address=None,
        pages=None,
        writable=True,
        context=None,
        identity=("object", id(handle)),
        duplicate=lambda: nullcontext(handle),  # an import leaves an NT handle to its owner
        hold=handle,
    )


def _nonzero_duplicate(fd: int) -> dmabuf.Fd:
    """A duplicate that is not fd 0, which OpenVINO takes for a missing handle."""
    import fcntl  # here, because Windows has none

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
        array=(array.shape, array.dtype.str),
    )


def _from_foreign(array: Any) -> Source:
    from l0py import interop

    try:
        found = interop.describe(array)
    except TypeError as error:
        raise TypeError(f"memory is a l0py.Memory, an fd (an int or what has fileno()) or an array: {error}") from error
    try:
        return _from_description(found, type(array).__name__)
    except TensorMismatch:
        found.release()
        raise


def _from_description(found: Foreign, what: str) -> Source:
    if found.strides is not None:
        raise TensorMismatch(f"the {what} of shape {found.shape} and strides {found.strides} is not C-contiguous")
    if found.format.startswith("<>"[sys.byteorder == "little"]):
        raise TensorMismatch(f"the bytes of the {what} are in another order than this machine's: {found.format}")
    address, size = found.address, found.size
    whole = address % PAGE == 0 and size % PAGE == 0 and size and found.host_visible is not False
    return Source(
        description=f"{what} of {size} bytes at {address:#x}",
        size=size,
        address=address,
        pages=(address, size) if whole else None,
        writable=not found.read_only,
        context=found.context or None,
        identity=("memory", address),
        duplicate=lambda: None,
        hold=found,
        host_visible=found.host_visible,
        array=(found.shape, found.format),
        let_go=found.release,
    )
