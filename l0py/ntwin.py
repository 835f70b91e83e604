"""Memory behind Windows NT handles: owned, made, looked at, and handed to other processes. Needs no driver.

The module can be imported everywhere. What asks Windows raises `OSError` (ENOSYS) where there is none.

`section` and `open_section` make and find memory that processes share; `NtHandle` owns the handle of one, or of what
D3D11, D3D12, Vulkan or Level Zero have exported; `KmtHandle` is a number of the older kind, which nobody owns.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import weakref
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _kernel32
from ._kernel32 import kernel32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self

__all__ = ["KMT_SOURCES", "SOURCES", "KmtHandle", "NtHandle", "open_section", "same_object", "section"]

#: Where an NT handle comes from, and the `type` with which `Context.import_win32` imports it.
SOURCES = {
    "section": "opaque_win32",  # CreateFileMapping
    "level_zero": "opaque_win32",  # an export of Level Zero
    "vulkan": "opaque_win32",  # VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32_BIT
    "d3d11_texture": "d3d11_texture",  # IDXGIResource1::CreateSharedHandle
    "d3d12_heap": "d3d12_heap",  # ID3D12Device::CreateSharedHandle of a heap
    "d3d12_resource": "d3d12_resource",  # ... of a committed resource
}
#: The same for what is no handle but a number, valid in all processes.
KMT_SOURCES = {
    "vulkan_kmt": "opaque_win32_kmt",  # VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32_KMT_BIT
    "d3d11_texture_kmt": "d3d11_texture_kmt",  # IDXGIResource::GetSharedHandle
}


class NtHandle:
    """An NT handle that is owned: closed by `close()`, the `with` block, or the garbage collector.

    `multiprocessing` passes it on: as an argument of a Process, through its queues, pipes and pools. The other process
    gets a handle of its own. What goes into a queue or pipe leaves a duplicate behind until it is taken out.
    """

    __slots__ = ("__weakref__", "_handle", "source")

    def __init__(self, handle: int, source: str = "section") -> None:
        """Takes the handle over; no program that is started from now on inherits it.

        `source` is one of `SOURCES`: what the handle is of. Calls SetHandleInformation. Raises `ValueError`, and
        `OSError` when it is not open.
        """
        self._handle = 0
        self.source = _known(source, SOURCES)
        number, system = _number(handle), kernel32()
        if not system.SetHandleInformation(number, _kernel32.HANDLE_FLAG_INHERIT, 0):
            raise system.failed(f"{number:#x} cannot be taken over")
        self._handle = number
        _introduce(type(self))

    @classmethod
    def duplicate(cls, handle: int | NtHandle, source: str | None = None) -> Self:
        """A new handle of the same object; the given one stays the caller's.

        `source` is the given one's, or `"section"` for a number, unless told otherwise. Calls DuplicateHandle. Raises
        `ValueError`, `OSError`.
        """
        kind = _known(source or (handle.source if isinstance(handle, NtHandle) else "section"), SOURCES)
        here = kernel32().GetCurrentProcess()
        return cls._adopt(_duplicate(_number_of(handle), here, here), kind)

    @classmethod
    def duplicate_from(
        cls, handle: int, source: str = "section", *, pid: int | None = None, process: int | None = None
    ) -> Self:
        """A handle of the same object as another process's handle, by its number there.

        The process is told by its id or by a handle of it that has the right PROCESS_DUP_HANDLE (`Process.sentinel` of
        multiprocessing is one). Calls OpenProcess and DuplicateHandle. Raises `ValueError`, `OSError`.
        """
        number = _number(handle)
        _known(source, SOURCES)
        with _process(pid, process) as there:
            return cls._adopt(_duplicate(number, there, kernel32().GetCurrentProcess()), source)

    @classmethod
    def _adopt(cls, handle: int, source: str) -> Self:
        """An owner for a handle that was just made, and is not inherited. Cannot fail."""
        owner = cls.__new__(cls)
        owner._handle = handle
        owner.source = source
        _introduce(cls)
        return owner

    @property
    def handle(self) -> int:
        """The handle's number, still owned here. Raises `ValueError` once it is closed or detached."""
        if not self._handle:
            raise ValueError("the handle is closed")
        return self._handle

    @property
    def type(self) -> str:
        """How `Context.import_win32` imports it: its source's type."""
        return SOURCES[self.source]

    @property
    def closed(self) -> bool:
        """Whether it was closed or detached."""
        return not self._handle

    @property
    def size(self) -> int:
        """The bytes of a section, which are whole pages. Raises `OSError` for another object's handle.

        Calls MapViewOfFile and VirtualQuery.
        """
        system, address = kernel32(), self._map(0, _kernel32.FILE_MAP_READ)
        try:
            return _view_size(system, address)
        finally:
            system.UnmapViewOfFile(address)

    def map(self, size: int | None = None, *, read_only: bool = False) -> memoryview:
        """A section's bytes, shared with everybody who has it: all of them, or the first `size`.

        They stay mapped until the view and all that was made of it are gone, whatever becomes of the handle. Calls
        MapViewOfFile. Raises `ValueError` for more bytes than there are, `OSError`.
        """
        there = self.size
        if size is not None and not 0 < size <= there:
            raise ValueError(f"{size} bytes cannot be mapped: {self!r} has {there}")
        length = there if size is None else size
        access = _kernel32.FILE_MAP_READ | (0 if read_only else _kernel32.FILE_MAP_WRITE)
        address = self._map(length, access)
        array = (ctypes.c_ubyte * length).from_address(address)
        unmap = weakref.finalize(array, kernel32().UnmapViewOfFile, address)
        unmap.atexit = False  # the process ends, and views may still be looked at
        view = memoryview(array).cast("B")
        return view.toreadonly() if read_only else view

    def _map(self, size: int, access: int) -> int:
        system = kernel32()
        address = system.MapViewOfFile(self.handle, access, 0, 0, size)
        if not address:
            raise system.failed(f"{self!r} cannot be mapped")
        return int(address)

    def duplicate_into(self, pid: int | None = None, *, process: int | None = None) -> int:
        """A handle of the same object that belongs to another process: its number there, and only there.

        That process must be told the number, and owns it with `NtHandle(number)`. The process is told as for
        `duplicate_from`. Calls OpenProcess and DuplicateHandle. Raises `ValueError`, `OSError`.
        """
        with _process(pid, process) as there:
            return _duplicate(self.handle, kernel32().GetCurrentProcess(), there)

    def detach(self) -> int:
        """Hands the handle over to the caller, who closes it."""
        number = self.handle
        self._handle = 0
        return number

    def close(self) -> None:
        """Closes it; once, later calls do nothing. Calls CloseHandle, raises `OSError` when somebody else did."""
        number, self._handle = self._handle, 0
        if number:
            system = kernel32()
            if not system.CloseHandle(number):
                raise system.failed(f"{number:#x} cannot be closed")

    def __enter__(self) -> Self:
        _ = self.handle
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", 0):
            self.close()

    def __reduce_ex__(self, protocol: Any) -> Any:
        # multiprocessing asks here when it was imported after the last handle was made, and was not told about it.
        if sys._getframe(1).f_globals.get("__name__") == "multiprocessing.reduction":
            return _reduce(self)
        raise TypeError(
            "an NtHandle cannot be copied or pickled, both would close it: see NtHandle.duplicate() and "
            "duplicate_into(). Only multiprocessing can pickle it: to its processes, queues and pipes"
        )

    def __repr__(self) -> str:
        if self.closed:
            return "<l0py.ntwin.NtHandle (closed)>"
        return f"<l0py.ntwin.NtHandle {self._handle:#x}, {self.source}>"


@dataclass(frozen=True)
class KmtHandle:
    """A global share handle of the older kind: a number for all processes, which nobody may close or duplicate.

    It is good for as long as its resource lives. `source` is one of `KMT_SOURCES`. Raises `ValueError`.
    """

    handle: int
    source: str

    def __post_init__(self) -> None:
        _number(self.handle)
        _known(self.source, KMT_SOURCES)

    @property
    def type(self) -> str:
        """How `Context.import_win32` imports it: its source's type."""
        return KMT_SOURCES[self.source]


def section(size: int, name: str | None = None) -> NtHandle:
    r"""New memory that processes can share, `size` bytes rounded up to whole pages, zeroed.

    With a `name`, others open it by that: `"Local\..."` within the session, `"Global\..."` in all of them (which takes
    a privilege). It lives as long as any handle or view of it. Calls CreateFileMappingW. Raises `ValueError`,
    `FileExistsError` when there is something of that name, `OSError`.
    """
    if not 0 < size < 1 << 63:
        raise ValueError(f"a section of {size} bytes: size must be positive")
    system = kernel32()
    arguments = (_kernel32.PAGE_READWRITE, size >> 32, size & 0xFFFFFFFF, _name(name))
    handle = system.CreateFileMappingW(_kernel32.INVALID_HANDLE, None, *arguments)
    if not handle:
        raise system.failed(f"no section of {size} bytes could be made")
    if system.last_error() == _kernel32.ERROR_ALREADY_EXISTS:  # and the handle is of that one
        system.CloseHandle(handle)
        raise FileExistsError(errno.EEXIST, f"there is a section {name!r} already: see open_section()")
    return NtHandle._adopt(handle, "section")


def open_section(name: str, *, read_only: bool = False) -> NtHandle:
    """Memory that somebody made with a name. Calls OpenFileMappingW; raises `FileNotFoundError`, `OSError`."""
    system = kernel32()
    access = _kernel32.SECTION_QUERY | _kernel32.FILE_MAP_READ | (0 if read_only else _kernel32.FILE_MAP_WRITE)
    handle = system.OpenFileMappingW(access, False, _name(name))
    if not handle:
        raise system.failed(f"section {name!r} cannot be opened")
    return NtHandle._adopt(handle, "section")


def same_object(one: int | NtHandle, other: int | NtHandle) -> bool:
    """Whether two handles are of one object. Calls CompareObjectHandles; `OSError` (ENOSYS) before Windows 10."""
    system = kernel32()
    if system.CompareObjectHandles is None:
        raise OSError(errno.ENOSYS, "this Windows cannot compare handles: Windows 10 is the first that can")
    return bool(system.CompareObjectHandles(_number_of(one), _number_of(other)))


def _number(handle: int) -> int:
    """A handle as ctypes takes it. Raises `TypeError`, `ValueError`."""
    if isinstance(handle, bool) or not isinstance(handle, int):
        raise TypeError(f"a Windows handle is an int; this is {type(handle).__name__}")
    if not 0 < handle < _kernel32.INVALID_HANDLE:
        raise ValueError(f"{handle:#x} is no Windows handle")
    return handle


def _number_of(handle: int | NtHandle) -> int:
    return handle.handle if isinstance(handle, NtHandle) else _number(handle)


def _known(source: str, sources: dict[str, str]) -> str:
    if source not in sources:
        raise ValueError(f"source {source!r} is none of {', '.join(map(repr, sources))}")
    return source


def _name(name: str | None) -> str | None:
    if name is not None and (not name or "\0" in name):
        raise ValueError(f"{name!r} is no name of a section")
    return name


@contextmanager
def _process(pid: int | None, process: int | None) -> Iterator[int]:
    """A process's handle, for as long as the block runs."""
    if (pid is None) == (process is None):
        raise ValueError("a process is told either by its id or by a handle of it")
    if process is not None:
        yield _number(process)
        return
    system = kernel32()
    opened = system.OpenProcess(_kernel32.PROCESS_DUP_HANDLE, False, pid)
    if not opened:
        raise system.failed(f"process {pid} cannot be opened")
    try:
        yield opened
    finally:
        system.CloseHandle(opened)


def _duplicate(handle: int, source: int, target: int, options: int = _kernel32.DUPLICATE_SAME_ACCESS) -> int:
    system, copy = kernel32(), ctypes.c_void_p()
    if not system.DuplicateHandle(source, handle, target, ctypes.byref(copy), 0, False, options):
        raise system.failed(f"{handle:#x} cannot be duplicated")
    return int(copy.value or 0)


def _view_size(system: _kernel32.Kernel32, address: int) -> int:
    """The bytes of a view that are memory, up to what was only reserved."""
    region, size = _kernel32.MemoryInformation(), 0
    while system.VirtualQuery(address + size, ctypes.byref(region), ctypes.sizeof(region)):
        if region.allocation != address or region.state != _kernel32.MEM_COMMIT or region.type != _kernel32.MEM_MAPPED:
            break
        size += region.size
    return size


#: The classes that multiprocessing's pickler knows.
_introduced: set[type[NtHandle]] = set()


def _introduce(cls: type[NtHandle]) -> None:
    """Tells multiprocessing's pickler how a handle travels, if it is there: importing it here would take too long."""
    if cls not in _introduced:
        # Another thread may be in the middle of importing it: the next handle tells it then.
        register = getattr(sys.modules.get("multiprocessing.reduction"), "register", None)
        if register is not None:
            register(cls, _reduce)
            _introduced.add(cls)


def _reduce(handle: NtHandle) -> Any:
    from multiprocessing import context

    child = context.get_spawning_popen()
    if child is not None:  # it ends with all its handles, also when it never unpickles this one
        return _rebuild, (type(handle), child.duplicate_for_child(handle.handle), handle.source)
    return _fetch, (type(handle), os.getpid(), NtHandle.duplicate(handle).detach(), handle.source)


def _rebuild(cls: type[NtHandle], number: int, source: str) -> NtHandle:
    return cls(number, source)


def _fetch(cls: type[NtHandle], pid: int, number: int, source: str) -> NtHandle:
    """Takes the duplicate that waits for it in the process that pickled."""
    move = _kernel32.DUPLICATE_SAME_ACCESS | _kernel32.DUPLICATE_CLOSE_SOURCE
    with _process(pid, None) as there:
        return cls._adopt(_duplicate(number, there, kernel32().GetCurrentProcess(), move), source)
