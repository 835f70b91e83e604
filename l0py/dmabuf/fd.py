"""An owned file descriptor, and what it is."""

from __future__ import annotations

import errno
import os
import stat
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from . import _kernel

if TYPE_CHECKING:
    import mmap
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["Fd", "buffer_size", "kind_of"]

#: A dma-buf's name has at most so many bytes (DMA_BUF_NAME_LEN, with a final zero).
_LONGEST_NAME = 31


class HasFileno(Protocol):
    """Anything with a descriptor."""

    def fileno(self) -> int:
        """The descriptor's number."""
        ...


class Fd:
    """A file descriptor that is owned: closed by `close()`, the `with` block, or the garbage collector.

    `multiprocessing` passes it on: as an argument of a Process, through its queues, pipes and pools. The other process
    gets a descriptor of its own, which must be the same buffer (ValueError). What goes into a queue or pipe leaves a
    duplicate behind until it is taken out.
    """

    __slots__ = ("__weakref__", "_fd")

    def __init__(self, fd: int) -> None:
        """Takes the descriptor over and makes it close-on-exec. Raises `OSError` when it is not open."""
        self._fd = -1
        _kernel.require()
        if not isinstance(fd, int):  # whatever else has a descriptor closes it, too
            raise TypeError(
                f"an Fd takes over a number, not a {type(fd).__name__}: see {type(self).__name__}.duplicate()"
            )
        number = number_of(fd)
        os.set_inheritable(number, False)
        self._fd = number
        _introduce(type(self))

    @classmethod
    def duplicate(cls, fd: int | HasFileno) -> Self:
        """A new descriptor for the same buffer; the given one stays the caller's. Raises `OSError`."""
        return adopt(cls, _kernel.duplicate(number_of(fd)))

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
        """Device and inode: equal for all descriptors of one buffer, in every process.

        Sync files and other things without bytes share one inode.
        """
        status = os.fstat(self.fileno())
        return status.st_dev, status.st_ino

    @property
    def kind(self) -> str:
        """What it is, see `kind_of`."""
        return kind_of(self.fileno())

    @property
    def name(self) -> str:
        """A dma-buf's or memfd's name, as debuggers and /proc show it; empty without one.

        It can be set for dma-bufs: at most 31 bytes. Calls DMA_BUF_SET_NAME; raises `ValueError`, `OSError`.
        """
        number = self.fileno()
        kind, link = kind_of(number), _kernel.link(number)
        if kind == "memfd":
            return link[len("/memfd:") :].removesuffix(" (deleted)")
        return _name_in_proc(number) if kind == "dma_buf" else ""

    @name.setter
    def name(self, name: str) -> None:
        number, encoded = self.fileno(), os.fsencode(name)
        if len(encoded) > _LONGEST_NAME or b"\0" in encoded:
            raise ValueError(f"{name!r}: a name has at most {_LONGEST_NAME} bytes, and no zero among them")
        if kind_of(number) != "dma_buf":
            raise OSError(errno.ENOTTY, f"{self!r} cannot be named: only a dma-buf can, others are when they are made")
        _kernel.ioctl(number, _kernel.DMA_BUF_SET_NAME, bytearray(encoded + b"\0"))

    @property
    def seals(self) -> frozenset[str]:
        """What nobody can do any more to a memfd: "shrink", "grow", "write", "future_write", "exec", "seal" (more).

        Empty for what has no seals. Calls fcntl(F_GET_SEALS).
        """
        bits = _kernel.seals(self.fileno()) or 0
        return frozenset(name for name, bit in _kernel.SEALS.items() if bits & bit)

    def add_seals(self, *names: str) -> None:
        """Seals a memfd for everybody and for good; see `seals`. Raises `ValueError`, `OSError`."""
        unknown = [name for name in names if name not in _kernel.SEALS]
        if unknown:
            raise ValueError(f"no such seal: {', '.join(map(repr, unknown))}; there are {', '.join(_kernel.SEALS)}")
        try:
            _kernel.add_seals(self.fileno(), sum(_kernel.SEALS[name] for name in set(names)))
        except OSError as error:
            why = {
                errno.EINVAL: "only a memfd made with MFD_ALLOW_SEALING can be sealed",
                errno.EPERM: "it was sealed against more seals, or is open for reading alone",
                errno.EBUSY: "it cannot be sealed against writing while it is mapped writable",
            }.get(error.errno or 0)
            if why is None:
                raise
            raise OSError(error.errno, f"{self!r} cannot be sealed: {why}") from None

    def mmap(self, size: int | None = None, offset: int = 0, access: str = "read_write") -> mmap.mmap:
        """The buffer's bytes, shared with everybody who has it: an `mmap.mmap` for `memoryview` or NumPy.

        `size` bytes from `offset` (a multiple of the page size), by default all; `access` is "read" or "read_write".
        The mapping holds a descriptor of its own and outlives this one. Before the CPU touches a dma-buf, open a
        window with `cpu_access`. Should somebody truncate the file later, touching what is gone kills the process
        (SIGBUS): `seals` tells whether that can happen. Raises `ValueError` for bytes that are not there, `OSError`.
        """
        import mmap

        number = self.fileno()
        if access not in ("read", "read_write"):
            raise ValueError(f"access is 'read' or 'read_write', not {access!r}")
        there = buffer_size(number)
        if offset < 0 or offset % mmap.ALLOCATIONGRANULARITY:
            raise ValueError(f"offset {offset} is not a multiple of the page size, {mmap.ALLOCATIONGRANULARITY}")
        length = there - offset if size is None else size
        if length <= 0 or offset + length > there:
            raise ValueError(f"{length} bytes at {offset} cannot be mapped: {self!r} has {there}")
        protection = mmap.PROT_READ if access == "read" else mmap.PROT_READ | mmap.PROT_WRITE
        return mmap.mmap(number, length, mmap.MAP_SHARED, protection, offset=offset)

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

    def __reduce_ex__(self, protocol: Any) -> Any:
        # multiprocessing asks here when it was imported after the last Fd was made, and was not told about it.
        if sys._getframe(1).f_globals.get("__name__") == "multiprocessing.reduction":
            return _reduce(self)
        name = type(self).__name__
        raise TypeError(
            f"a {name} cannot be copied or pickled, both would close it: see {name}.duplicate() and send(). "
            "Only multiprocessing can pickle it: to its processes, queues and pipes"
        )

    def __repr__(self) -> str:
        name = f"l0py.dmabuf.{type(self).__name__}"
        if self.closed:
            return f"<{name} (closed)>"
        try:
            return f"<{name} {self._fd}, {f'{self.size} bytes' if self.size else f'{self.kind}, no bytes'}>"
        except OSError:  # somebody closed it by its number
            return f"<{name} {self._fd}, not open>"


_AnyFd = TypeVar("_AnyFd", bound=Fd)


def adopt(cls: type[_AnyFd], number: int) -> _AnyFd:
    """An Fd for a descriptor that the kernel has just made. Cannot fail, and asks nothing."""
    fd = cls.__new__(cls)
    fd._fd = number
    _introduce(cls)
    return fd


def number_of(fd: int | HasFileno) -> int:
    """The number that a descriptor or an object with one has. Raises `TypeError`, `ValueError`, `OSError`."""
    if isinstance(fd, bool) or not (isinstance(fd, int) or hasattr(fd, "fileno")):
        raise TypeError(f"a file descriptor is an int or has fileno(); this is {type(fd).__name__}")
    number = fd if isinstance(fd, int) else fd.fileno()
    if not 0 <= number < 1 << 31:
        raise OSError(errno.EBADF, f"{os.strerror(errno.EBADF)}: {number}")
    return number


def kind_of(fd: int | HasFileno) -> str:
    """What a descriptor is: "dma_buf", "memfd", "shm", "file", "sync_file" or "other".

    "shm" is a file in shared memory (/dev/shm, tmpfs), "file" any other regular file, "other" has no bytes to share:
    pipes, sockets, directories, devices. The kernel decides, not a name: a dma-buf is what refuses flags that
    DMA_BUF_IOCTL_SYNC does not have, a sync file what answers SYNC_IOC_FILE_INFO, shared memory what has seals. Only
    to tell a memfd from other shared memory takes /proc. Raises `OSError` when it is not open.
    """
    number = number_of(fd)
    _kernel.require()
    mode = stat.S_IFMT(os.fstat(number).st_mode)
    if mode not in (0, stat.S_IFREG):  # dma-bufs and sync files have no type, or are regular
        return "other"
    if _kernel.seals(number) is not None:
        return "memfd" if _kernel.link(number).startswith("/memfd:") else "shm"
    if _answers(number, _kernel.DMA_BUF_SYNC, bytearray(_kernel.SYNC.pack(1 << 32))) == errno.EINVAL:
        return "dma_buf"
    if not _answers(number, _kernel.SYNC_FILE_INFO, bytearray(_kernel.FILE_INFO.size)):
        return "sync_file"
    return "file" if mode else "other"


def _answers(fd: int, number: int, argument: bytearray) -> int:
    """The errno that a question gets; 0 for none."""
    try:
        _kernel.ioctl(fd, number, argument)
    except OSError as error:
        return error.errno or 0
    return 0


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


def _name_in_proc(fd: int) -> str:
    try:
        with open(f"/proc/self/fdinfo/{fd}", encoding=sys.getfilesystemencoding(), errors="surrogateescape") as file:  # noqa: PTH123
            names = [line[len("name:") :].strip() for line in file if line.startswith("name:")]
    except FileNotFoundError:
        return ""
    return names[0] if names else ""


class Description(NamedTuple):
    """What is told about a descriptor when it is handed over, and must be true where it arrives."""

    kind: str
    size: int
    device: int
    inode: int

    @classmethod
    def of(cls, fd: int) -> Description:
        """Raises `OSError` when it is not open."""
        status = os.fstat(fd)
        return cls(kind_of(fd), buffer_size(fd), status.st_dev, status.st_ino)

    def require(self, fd: int) -> None:
        """Raises `ValueError` when a descriptor is something else."""
        found = Description.of(fd)
        if found == self:
            return
        if found[2:] != self[2:]:
            raise ValueError(f"another {found.kind} arrived than the {self.kind} that its sender described")
        raise ValueError(
            f"a {found.kind} of {found.size} bytes arrived, its sender described {self.size} ({self.kind})"
        )


#: The classes that multiprocessing's pickler knows.
_introduced: set[type[Fd]] = set()


def _introduce(cls: type[Fd]) -> None:
    """Tells multiprocessing's pickler how an Fd travels, if it is there: importing it takes too long to do it here."""
    if cls not in _introduced:
        # Another thread may be in the middle of importing it: the next Fd tells it then, or __reduce_ex__.
        register = getattr(sys.modules.get("multiprocessing.reduction"), "register", None)
        if register is not None:
            register(cls, _reduce)
            _introduced.add(cls)


def _reduce(fd: Fd) -> Any:
    from multiprocessing.reduction import DupFd

    number = fd.fileno()
    return _rebuild, (type(fd), Description.of(number), DupFd(number))


def _rebuild(cls: type[_AnyFd], told: Description, sent: Any) -> _AnyFd:
    fd = adopt(cls, sent.detach())
    try:
        os.set_inheritable(fd.fileno(), False)
        told.require(fd.fileno())
    except BaseException:
        fd.close()
        raise
    return fd
