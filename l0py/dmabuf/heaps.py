"""New buffers: from the kernel's dma-buf heaps, from memory of one's own (udmabuf), and plain memfds."""

from __future__ import annotations

import errno
import mmap
import os
from typing import TYPE_CHECKING, NoReturn

from . import _kernel
from .fd import Fd, adopt, kind_of, number_of

if TYPE_CHECKING:
    from .fd import HasFileno

__all__ = ["allocate", "create_udmabuf", "from_memfd", "heaps", "memfd"]

_UDMABUF_LIMIT = "/sys/module/udmabuf/parameters/size_limit_mb"

#: UDMABUF_FLAGS_CLOEXEC
_CLOSE_ON_EXEC = 1


def heaps() -> list[str]:
    """The names of this machine's dma-buf heaps; none where the kernel has none."""
    try:
        return sorted(os.listdir(_kernel.HEAPS))  # noqa: PTH208 - pathlib takes longer to import than all of l0py
    except (FileNotFoundError, NotADirectoryError):
        return []


def allocate(size: int, heap: str = "system", *, name: str | None = None) -> Fd:
    """A new dma-buf from a heap, zeroed, of `size` bytes rounded up to whole pages; `name` is for debuggers.

    Calls DMA_HEAP_IOCTL_ALLOC. Raises `ValueError`; `FileNotFoundError` where there is no such heap, `PermissionError`
    where this user may not use it, `OSError` for what the kernel refuses.
    """
    _kernel.require()
    _require_positive(size)
    if not heap or "/" in heap or heap in (".", ".."):
        raise ValueError(f"{heap!r} is no heap's name; here are {', '.join(heaps()) or 'none'}")
    if size > os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE:
        # The kernel would try, page after page, until it kills processes for want of memory.
        raise OSError(errno.ENOMEM, f"allocating {size} bytes: this machine has less memory")
    missing = f"this machine has {', '.join(heaps()) or 'none'}; kernels with CONFIG_DMABUF_HEAPS have them"
    request = bytearray(_kernel.HEAP_ALLOC.pack(size, 0, os.O_RDWR | os.O_CLOEXEC, 0))
    _ask_node(f"{_kernel.HEAPS}/{heap}", _kernel.DMA_HEAP_ALLOC, request, missing, f"allocating {size} bytes")
    return _named(adopt(Fd, _kernel.HEAP_ALLOC.unpack(request)[1]), name)


def memfd(size: int, name: str = "l0py") -> Fd:
    """New memory of `size` bytes, zeroed, behind a descriptor: a memfd that nobody can shrink or grow any more.

    So whoever maps it need not fear that it is truncated. Calls memfd_create, ftruncate, fcntl(F_ADD_SEALS). Raises
    `ValueError`, `OSError`.
    """
    _kernel.require()
    _require_positive(size)
    fd = adopt(Fd, os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
    try:
        os.ftruncate(fd.fileno(), size)
        fd.add_seals("shrink", "grow")
    except BaseException:
        fd.close()
        raise
    return fd


def from_memfd(memfd: int | HasFileno, offset: int = 0, size: int | None = None) -> Fd:
    """A dma-buf over a memfd's own pages: `size` bytes from `offset`, whole pages, by default all from there.

    The memfd must be sealed against shrinking and not against writing (`memfd()` makes such), and stays the caller's,
    who may close it. Calls UDMABUF_CREATE. Raises `ValueError` for a range that does not fit, `OSError` for a
    descriptor that does not do, `FileNotFoundError` and `PermissionError` when /dev/udmabuf cannot be used.
    """
    number = number_of(memfd)
    _require_sealed(number)
    there = os.fstat(number).st_size
    page = mmap.PAGESIZE
    length = there - offset if size is None else size
    if offset < 0 or length <= 0 or offset % page or length % page:
        raise ValueError(f"{length} bytes at {offset}: size and offset must be multiples of {page}, the size positive")
    if offset + length > there:
        raise ValueError(f"{length} bytes at {offset} are not there: file descriptor {number} has {there}")
    missing = "kernels with CONFIG_UDMABUF have it, some after `modprobe udmabuf`"
    request = bytearray(_kernel.CREATE.pack(number, _CLOSE_ON_EXEC, offset, length))
    what = f"making a dma-buf of {length} bytes"
    return adopt(Fd, _ask_node(_kernel.UDMABUF, _kernel.UDMABUF_CREATE, request, missing, what))


def create_udmabuf(size: int, *, name: str | None = None) -> Fd:
    """A new dma-buf in ordinary memory, zeroed, of `size` bytes rounded up to whole pages.

    Calls what `memfd` and `from_memfd` call, and raises what they raise.
    """
    _require_positive(size)
    with memfd(-(-size // mmap.PAGESIZE) * mmap.PAGESIZE) as pages:
        return _named(from_memfd(pages), name)


def _require_positive(size: int) -> None:
    if not 0 < size < 1 << 63:
        raise ValueError(f"cannot make a buffer of {size} bytes: size must be positive, and below 2**63")


def _require_sealed(number: int) -> None:
    seals = _kernel.seals(number)
    if seals is None:
        raise OSError(errno.EINVAL, f"file descriptor {number} is no memfd (its kind: {kind_of(number)})")
    if not seals & _kernel.SEALS["shrink"]:
        way = "made with MFD_ALLOW_SEALING, it gets the seal by Fd.add_seals('shrink'); memfd() makes such"
        raise OSError(errno.EINVAL, f"the memfd {number} can still be shrunk: {way}")
    if seals & _kernel.SEALS["write"]:
        raise OSError(errno.EINVAL, f"the memfd {number} is sealed against writing: it cannot be a dma-buf")


def _ask_node(path: str, request: int, argument: bytearray, missing: str, what: str) -> int:
    """Opens a device's node, asks it, closes it; the ioctl's own answer."""
    try:
        node = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(errno.ENOENT, f"there is no {path}: {missing}") from None
    except PermissionError as error:
        raise PermissionError(error.errno, f"this user may not open {path}: {_owner(path)} may") from None
    except OSError as error:
        if error.errno not in (errno.ENXIO, errno.ENODEV):
            raise
        raise OSError(error.errno, f"there is no driver behind {path}: {missing}") from None
    try:
        return _kernel.ioctl(node, request, argument)
    except OSError as error:
        _explain(error, path, what)
    finally:
        os.close(node)


def _owner(path: str) -> str:
    status = os.stat(path)  # noqa: PTH116
    return f"uid {status.st_uid} or gid {status.st_gid}, mode {status.st_mode & 0o7777:04o},"


def _explain(error: OSError, path: str, what: str) -> NoReturn:
    hint = {
        errno.EINVAL: _limit(),
        errno.ENOTTY: ": what has this name is something else",
    }.get(error.errno or 0, "")
    raise OSError(error.errno, f"{what} through {path}: {error.strerror}{hint}") from None


def _limit() -> str:
    try:
        with open(_UDMABUF_LIMIT, encoding="ascii") as file:  # noqa: PTH123
            return f" (udmabuf makes at most {file.read().strip()} MiB, see {_UDMABUF_LIMIT})"
    except OSError:
        return ""


def _named(fd: Fd, name: str | None) -> Fd:
    if name is not None:
        try:
            fd.name = name
        except BaseException:
            fd.close()
            raise
    return fd
