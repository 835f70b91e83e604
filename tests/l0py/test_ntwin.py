"""`l0py.ntwin` on a stand-in for kernel32, whose functions have the signatures of Microsoft's documentation."""

from __future__ import annotations

import copy
import ctypes
import gc
import multiprocessing.context
import multiprocessing.reduction
import pickle
import sys
from ctypes import POINTER, c_int32, c_size_t, c_uint32, c_void_p, c_wchar_p
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from l0py import _kernel32, ntwin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAGE = 4096
THIS_PROCESS = (1 << 64) - 1
FILE_NOT_FOUND, ACCESS_DENIED, INVALID_HANDLE, NO_MEMORY, INVALID_PARAMETER, EXISTS = 2, 5, 6, 8, 87, 183

BOOL, DWORD, HANDLE, POINTER_TO_HANDLE = c_int32, c_uint32, c_void_p, POINTER(c_void_p)
DOCUMENTED = {
    "CloseHandle": (BOOL, HANDLE),
    "CompareObjectHandles": (BOOL, HANDLE, HANDLE),
    "CreateFileMappingW": (HANDLE, HANDLE, c_void_p, DWORD, DWORD, DWORD, c_wchar_p),
    "DuplicateHandle": (BOOL, HANDLE, HANDLE, HANDLE, POINTER_TO_HANDLE, DWORD, BOOL, DWORD),
    "GetCurrentProcess": (HANDLE,),
    "MapViewOfFile": (c_void_p, HANDLE, DWORD, DWORD, DWORD, c_size_t),
    "OpenFileMappingW": (HANDLE, DWORD, BOOL, c_wchar_p),
    "OpenProcess": (HANDLE, DWORD, BOOL, DWORD),
    "SetHandleInformation": (BOOL, HANDLE, DWORD, DWORD),
    "UnmapViewOfFile": (BOOL, c_void_p),
    "VirtualQuery": (c_size_t, c_void_p, POINTER(_kernel32.MemoryInformation), c_size_t),
}


class Section:
    """Pages, at an address of their own."""

    def __init__(self, size: int) -> None:
        self.size = -(-size // PAGE) * PAGE
        self.room = (ctypes.c_ubyte * (self.size + PAGE))()
        start = ctypes.addressof(self.room)
        self.address = start + -start % PAGE


@dataclass
class Entry:
    """One handle: its object, what it may be used for, and whether children inherit it."""

    object: object
    access: int = 0xF001F
    inherited: bool = False


@dataclass
class Process:
    pid: int
    handles: dict[int, Entry] = field(default_factory=dict)
    next_number: int = 0

    def add(self, entry: Entry) -> int:
        self.next_number += 4
        number = self.pid * 0x1000 + self.next_number
        self.handles[number] = entry
        return number


class Windows:
    """Processes with their handles, named sections and views. `current` is who calls."""

    def __init__(self) -> None:
        self.processes = {pid: Process(pid) for pid in (100, 200)}
        self.current = self.processes[100]
        self.names: dict[str, Section] = {}
        self.views: list[int] = []
        self.error = 0
        self.fail: dict[str, int] = {}
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        # Functions of C with exactly those types: ctypes converts or refuses as it does for Windows' own.
        self.functions = {name: ctypes.CFUNCTYPE(*types)(self._entry(name)) for name, types in DOCUMENTED.items()}

    def bind(self) -> _kernel32.Kernel32:
        return _kernel32.Kernel32(lambda _, name: self.functions.get(name), lambda: self.error)

    def held(self) -> int:
        return sum(len(process.handles) for process in self.processes.values()) + len(self.views)

    def _entry(self, name: str) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            self.calls.append((name, arguments))
            self.error = self.fail.get(name, 0)
            return 0 if self.error else int(getattr(self, name)(*arguments) or 0)

        return call

    def _refuse(self, error: int) -> int:
        self.error = error
        return 0

    def CloseHandle(self, handle: int) -> int:
        return 1 if self.current.handles.pop(handle, None) else self._refuse(INVALID_HANDLE)

    def CompareObjectHandles(self, one: int, other: int) -> bool:
        entries = [self.current.handles.get(handle) for handle in (one, other)]
        return None not in entries and entries[0].object is entries[1].object

    def CreateFileMappingW(self, file: int, security: int, page: int, high: int, low: int, name: str | None) -> int:
        assert (file, security, page) == (THIS_PROCESS, None, 0x04)  # no file but the page file, PAGE_READWRITE
        section = self.names.get(name) if name else None
        if section is not None:
            self.error = EXISTS
        else:
            size = high << 32 | low
            if size > 1 << 32:
                return self._refuse(NO_MEMORY)
            section = Section(size)
        if name:
            self.names[name] = section
        return self.current.add(Entry(section))

    def OpenFileMappingW(self, access: int, inherit: int, name: str) -> int:
        section = self.names.get(name)
        return self.current.add(Entry(section, access, bool(inherit))) if section else self._refuse(FILE_NOT_FOUND)

    def MapViewOfFile(self, handle: int, access: int, high: int, low: int, size: int) -> int:
        entry = self.current.handles.get(handle)
        if entry is None or not isinstance(entry.object, Section):
            return self._refuse(INVALID_HANDLE)
        if access & ~entry.access:
            return self._refuse(ACCESS_DENIED)
        if size > entry.object.size:
            return self._refuse(INVALID_PARAMETER)
        self.views.append(entry.object.address)
        return entry.object.address

    def UnmapViewOfFile(self, address: int) -> int:
        self.views.remove(address)
        return 1

    def VirtualQuery(self, address: int, out: Any, size: int) -> int:
        assert size == ctypes.sizeof(_kernel32.MemoryInformation) == 48
        sections = [entry.object for process in self.processes.values() for entry in process.handles.values()]
        for section in sections:
            if isinstance(section, Section) and section.address <= address < section.address + section.size:
                region = out[0]
                region.base, region.allocation = address, section.address
                region.size = min(PAGE, section.address + section.size - address)  # of many regions
                region.state, region.type = 0x1000, 0x40000  # MEM_COMMIT, MEM_MAPPED
                return size
        out[0].allocation, out[0].state = None, 0x10000  # MEM_FREE
        return size

    def GetCurrentProcess(self) -> int:
        return THIS_PROCESS

    def OpenProcess(self, access: int, inherit: int, pid: int) -> int:
        assert (access, inherit) == (0x40, 0)  # PROCESS_DUP_HANDLE
        process = self.processes.get(pid)
        return self.current.add(Entry(process, access)) if process else self._refuse(INVALID_PARAMETER)

    def _process(self, handle: int) -> Process:
        process = self.current if handle == THIS_PROCESS else self.current.handles[handle].object
        assert isinstance(process, Process)
        return process

    def DuplicateHandle(
        self, source: int, handle: int, target: int, out: Any, access: int, inherit: int, options: int
    ) -> int:
        assert access == 0
        assert options & 0x2  # DUPLICATE_SAME_ACCESS
        there = self._process(source)
        entry = there.handles.get(handle)
        if entry is None:
            return self._refuse(INVALID_HANDLE)
        out[0] = self._process(target).add(Entry(entry.object, entry.access, bool(inherit)))
        if options & 0x1:  # DUPLICATE_CLOSE_SOURCE
            del there.handles[handle]
        return 1

    def SetHandleInformation(self, handle: int, mask: int, flags: int) -> int:
        assert mask == 0x1  # HANDLE_FLAG_INHERIT
        entry = self.current.handles.get(handle)
        if entry is None:
            return self._refuse(INVALID_HANDLE)
        entry.inherited = bool(flags & mask)
        return 1


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> Iterator[Windows]:
    """Everything that a test takes it gives back."""
    system = Windows()
    monkeypatch.setattr(_kernel32, "_bound", system.bind())
    monkeypatch.setattr("os.getpid", lambda: system.current.pid)
    yield system
    gc.collect()
    assert system.held() == 0


def foreign(windows: Windows, thing: object, *, inherited: bool = True) -> int:
    """A handle that somebody else's library made."""
    return windows.current.add(Entry(thing, inherited=inherited))


def test_signatures_are_the_documented_ones() -> None:
    ours = {name: types for functions in _kernel32.SIGNATURES.values() for name, types in functions.items()}
    assert {name: (result, *arguments) for name, (result, arguments) in ours.items()} == DOCUMENTED


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has all of it")
def test_elsewhere_using_it_says_so() -> None:
    for use in (lambda: ntwin.section(1), lambda: ntwin.open_section("a"), lambda: ntwin.NtHandle(4)):
        with pytest.raises(OSError, match="Windows alone has them"):
            use()
    assert ntwin.KmtHandle(0x40000002, "vulkan_kmt").type == "opaque_win32_kmt"


def test_an_owned_handle(windows: Windows) -> None:
    number = foreign(windows, Section(PAGE))
    with ntwin.NtHandle(number) as handle:
        assert handle.handle == number
        assert not windows.current.handles[number].inherited
        assert (handle.source, handle.type) == ("section", "opaque_win32")
        assert repr(handle) == f"<l0py.ntwin.NtHandle {number:#x}, section>"
    assert handle.closed
    assert repr(handle) == "<l0py.ntwin.NtHandle (closed)>"
    handle.close()
    assert [name for name, _ in windows.calls].count("CloseHandle") == 1
    for use in (
        lambda: handle.handle,
        handle.detach,
        handle.__enter__,
        lambda: handle.size,
        handle.map,
        lambda: handle.duplicate_into(200),
        lambda: ntwin.NtHandle.duplicate(handle),
        lambda: ntwin.same_object(handle, handle),
    ):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_the_collector_closes(windows: Windows) -> None:
    ntwin.NtHandle(foreign(windows, Section(PAGE)))
    gc.collect()
    assert windows.held() == 0


def test_detach_hands_it_over(windows: Windows) -> None:
    number = ntwin.section(1).detach()
    gc.collect()
    assert list(windows.current.handles) == [number]
    assert windows.CloseHandle(number)


def test_what_is_no_handle(windows: Windows) -> None:
    with pytest.raises(OSError, match=r"0x44 cannot be taken over: .*error 6") as caught:
        ntwin.NtHandle(0x44)
    assert caught.value.errno == 9  # EBADF
    for number in (0, -1, THIS_PROCESS, 1 << 64):
        with pytest.raises(ValueError, match="no Windows handle"):
            ntwin.NtHandle(number)
    for value in (None, "4", 4.0, True):
        with pytest.raises(TypeError, match="is an int"):
            ntwin.NtHandle(value)  # type: ignore[arg-type]


def test_somebody_else_closed_it(windows: Windows) -> None:
    handle = ntwin.section(1)
    windows.CloseHandle(handle.handle)
    with pytest.raises(OSError, match="cannot be closed"):
        handle.close()
    handle.close()


def test_duplicates_are_the_same_object_and_independent(windows: Windows) -> None:
    one = ntwin.NtHandle(foreign(windows, object()), "d3d12_heap")
    two = ntwin.NtHandle.duplicate(one)
    other = ntwin.section(1)
    assert two.source == "d3d12_heap"
    assert one.handle != two.handle
    assert not windows.current.handles[two.handle].inherited
    assert ntwin.same_object(one, two.handle)
    assert not ntwin.same_object(one, other)
    one.close()
    assert not two.closed
    assert ntwin.NtHandle.duplicate(two.handle).source == "section"
    assert ntwin.NtHandle.duplicate(two.handle, "vulkan").type == "opaque_win32"
    with pytest.raises(ValueError, match="source 'file' is none of"):
        ntwin.NtHandle.duplicate(two, "file")


def test_old_windows_cannot_compare(windows: Windows, monkeypatch: pytest.MonkeyPatch) -> None:
    del windows.functions["CompareObjectHandles"]
    monkeypatch.setattr(_kernel32, "_bound", windows.bind())
    with pytest.raises(OSError, match="Windows 10 is the first"):
        ntwin.same_object(4, 8)


def test_a_section_is_memory(windows: Windows) -> None:
    with ntwin.section(PAGE + 1) as section:
        assert section.size == 2 * PAGE
        first, second = section.map(), section.map(100, read_only=True)
        first[:5] = b"hello"
        assert bytes(second[:5]) == b"hello"
        assert (len(first), len(second), first.readonly, second.readonly) == (2 * PAGE, 100, False, True)
        assert first.format == "B"
        for size in (0, -1, 2 * PAGE + 1):
            with pytest.raises(ValueError, match="cannot be mapped"):
                section.map(size)
    array = np.frombuffer(first, "u1")
    del first, second
    gc.collect()
    assert len(windows.views) == 1  # the array's
    assert bytes(array[:5]) == b"hello"
    del array


def test_a_large_section_is_asked_for_in_two_halves(windows: Windows) -> None:
    with pytest.raises(OSError, match="no section of") as caught:
        ntwin.section((5 << 32) + 3)
    assert caught.value.errno == 12  # ENOMEM
    assert windows.calls[-1][1][3:5] == (5, 3)
    for size in (0, -1, 1 << 63):
        with pytest.raises(ValueError, match="must be positive"):
            ntwin.section(size)


def test_sections_by_name(windows: Windows) -> None:
    made = ntwin.section(PAGE, "Local\\frames")
    found = ntwin.open_section("Local\\frames", read_only=True)
    assert ntwin.same_object(made, found)
    made.map()[:1] = b"x"
    assert bytes(found.map(read_only=True)[:1]) == b"x"
    with pytest.raises(PermissionError):
        found.map()
    held = windows.held()
    with pytest.raises(FileExistsError, match="open_section"):
        ntwin.section(PAGE, "Local\\frames")
    assert windows.held() == held
    with pytest.raises(FileNotFoundError, match="'other' cannot be opened"):
        ntwin.open_section("other")
    for name in ("", "a\0b"):
        with pytest.raises(ValueError, match="no name"):
            ntwin.section(1, name)


def test_what_is_no_section_has_no_size(windows: Windows) -> None:
    handle = ntwin.NtHandle(foreign(windows, object()), "d3d12_resource")
    with pytest.raises(OSError, match="cannot be mapped"):
        _ = handle.size
    with pytest.raises(OSError, match="cannot be mapped"):
        handle.map()


@pytest.mark.parametrize("by", ["pid", "process"])
def test_another_process_gets_a_handle_of_its_own(windows: Windows, by: str) -> None:
    there = windows.processes[200]
    process = foreign(windows, there)
    whom = {"pid": 200} if by == "pid" else {"process": process}
    section = ntwin.section(PAGE)
    section.map()[:3] = b"abc"
    number = section.duplicate_into(**whom)
    assert list(there.handles) == [number]
    assert not there.handles[number].inherited
    windows.CloseHandle(process)
    section.close()
    windows.current = there
    with ntwin.NtHandle(number) as received:
        assert bytes(received.map()[:3]) == b"abc"


@pytest.mark.parametrize("by", ["pid", "process"])
def test_another_process_handle_is_fetched(windows: Windows, by: str) -> None:
    there = windows.processes[200]
    number = there.add(Entry(Section(PAGE)))
    process = foreign(windows, there)
    whom = {"pid": 200} if by == "pid" else {"process": process}
    with ntwin.NtHandle.duplicate_from(number, "vulkan", **whom) as fetched:
        assert fetched.source == "vulkan"
        assert fetched.size == PAGE
    assert list(there.handles) == [number]
    with pytest.raises(OSError, match="cannot be duplicated"):
        ntwin.NtHandle.duplicate_from(0x44, **whom)
    with pytest.raises(ValueError, match="no Windows handle"):  # it would be of the process itself
        ntwin.NtHandle.duplicate_from(THIS_PROCESS, **whom)
    windows.CloseHandle(process)
    there.handles.clear()


def test_which_process_is_told_once(windows: Windows) -> None:
    section = ntwin.section(1)
    with pytest.raises(OSError, match="process 300 cannot be opened"):
        section.duplicate_into(300)
    for whom in ({}, {"pid": 200, "process": 4}):
        with pytest.raises(ValueError, match="either by its id or by a handle"):
            section.duplicate_into(**whom)


def test_copies_and_pickles_would_close_it_twice(windows: Windows) -> None:
    section = ntwin.section(1)
    for use in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="duplicate_into"):
            use(section)


def test_multiprocessing_passes_it_on(windows: Windows) -> None:
    section = ntwin.NtHandle(foreign(windows, Section(PAGE)), "level_zero")
    data = bytes(multiprocessing.reduction.ForkingPickler.dumps(section))
    section.close()
    windows.current = windows.processes[200]
    with pickle.loads(data) as received:
        assert (received.source, received.size) == ("level_zero", PAGE)
        assert not windows.current.handles[received.handle].inherited
        assert not windows.processes[100].handles  # the duplicate that waited is gone
        with pytest.raises(OSError, match="cannot be duplicated"):  # taken once
            pickle.loads(data)


def test_a_child_that_is_being_started_gets_it_at_once(windows: Windows, monkeypatch: pytest.MonkeyPatch) -> None:
    class Child:
        """As the spawning Popen of multiprocessing, which duplicates into its process."""

        def duplicate_for_child(self, handle: int) -> int:
            return windows.processes[200].add(Entry(windows.current.handles[handle].object, inherited=True))

    monkeypatch.setattr(multiprocessing.context, "get_spawning_popen", Child)
    section = ntwin.section(PAGE)
    data = bytes(multiprocessing.reduction.ForkingPickler.dumps(section))
    section.close()
    monkeypatch.undo()
    monkeypatch.setattr(_kernel32, "_bound", windows.bind())
    windows.current = windows.processes[200]
    with pickle.loads(data) as received:
        assert received.size == PAGE
        assert not windows.current.handles[received.handle].inherited


def test_sources_say_how_they_are_imported(windows: Windows) -> None:
    assert {source: ntwin.NtHandle(foreign(windows, object()), source).type for source in ntwin.SOURCES} == {
        "section": "opaque_win32",
        "level_zero": "opaque_win32",
        "vulkan": "opaque_win32",
        "d3d11_texture": "d3d11_texture",
        "d3d12_heap": "d3d12_heap",
        "d3d12_resource": "d3d12_resource",
    }
    for source in ("d3d12", "vulkan_kmt", ""):
        with pytest.raises(ValueError, match="is none of"):
            ntwin.NtHandle(4, source)


def test_kmt_handles_are_numbers_that_nobody_closes(windows: Windows) -> None:
    texture = ntwin.KmtHandle(0x40000082, "d3d11_texture_kmt")
    assert (texture.handle, texture.type) == (0x40000082, "d3d11_texture_kmt")
    assert pickle.loads(pickle.dumps(texture)) == copy.copy(texture) == texture
    assert not hasattr(texture, "close")
    del texture
    gc.collect()
    assert windows.calls == []
    with pytest.raises(ValueError, match="is none of"):
        ntwin.KmtHandle(0x40000082, "d3d12_heap")
    with pytest.raises(ValueError, match="no Windows handle"):
        ntwin.KmtHandle(0, "vulkan_kmt")


@pytest.mark.parametrize(
    ("function", "use"),
    [
        ("SetHandleInformation", lambda handle: ntwin.NtHandle(handle.handle)),
        ("DuplicateHandle", ntwin.NtHandle.duplicate),
        ("DuplicateHandle", lambda handle: handle.duplicate_into(200)),
        ("DuplicateHandle", lambda handle: ntwin.NtHandle.duplicate_from(handle.handle, pid=100)),
        ("OpenProcess", lambda handle: handle.duplicate_into(200)),
        ("CreateFileMappingW", lambda _: ntwin.section(1)),
        ("OpenFileMappingW", lambda _: ntwin.open_section("named")),
        ("MapViewOfFile", lambda handle: handle.size),
        ("MapViewOfFile", lambda handle: handle.map()),
    ],
)
@pytest.mark.parametrize("error", [ACCESS_DENIED, NO_MEMORY, 9999])
def test_a_function_that_fails_leaves_nothing(windows: Windows, function: str, use: Any, error: int) -> None:
    with ntwin.section(PAGE, "named") as handle:
        held = windows.held()
        windows.fail[function] = error
        with pytest.raises(OSError, match=f"error {error}") as caught:
            use(handle)
        assert isinstance(caught.value, PermissionError) == (error == ACCESS_DENIED)
        windows.fail.clear()
        assert windows.held() == held


def test_a_failing_close_is_told_once(windows: Windows) -> None:
    handle = ntwin.section(1)
    number = handle.handle
    windows.fail["CloseHandle"] = INVALID_HANDLE
    with pytest.raises(OSError, match="cannot be closed"):
        handle.close()
    windows.fail.clear()
    handle.close()
    assert handle.closed
    assert windows.CloseHandle(number)


AS_ON_WINDOWS = """
import asyncio, ctypes, json, multiprocessing, openvino, os, pathlib, socket, subprocess, sys, tempfile
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in ("geteuid", "memfd_create", "register_at_fork", "sysconf"):
    delattr(os, name)
sys.platform = "win32"
import l0py.__main__, l0py.diagnostics, l0py.dmabuf, l0py.imports, l0py.interop, l0py.ipc, l0py.ntwin, l0py.softdriver
import ovadapter.__main__, ovadapter.bench, ovadapter.demo.producer, ovadapter.doctor
print(l0py.loader.embedded_path().name, l0py.softdriver.path().name, l0py.softdriver.path("gpu").name)
"""


def test_everything_imports_without_what_windows_lacks(python: Any) -> None:
    pytest.importorskip("openvino")
    done = python(AS_ON_WINDOWS)
    assert done.stdout.split() == ["ze_loader.dll", "l0py_softdriver.dll", "l0py_softgpu.dll"], done.stderr
