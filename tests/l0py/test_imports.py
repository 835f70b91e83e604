"""Memory made from what is there already, on the software NPU driver."""

from __future__ import annotations

import errno
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
from ctypes import wintypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import l0py
from l0py import dmabuf, external, ntwin, softdriver


@pytest.mark.parametrize("kind", ["host", "device", "shared"])
def test_an_import_is_the_same_memory(context: l0py.Context, memfd: int, kind: str, no_leaks: None) -> None:
    with mmap.mmap(memfd, 8192) as seen, context.import_dma_buf(memfd, kind=kind) as memory:
        assert (memory.size, memory.kind, memory.origin) == (8192, kind, "dma_buf")
        seen[:3] = b"abc"
        if kind != "device":
            assert bytes(memory.view()[:3]) == b"abc"
            memory.view()[0] = 7
            assert seen[0] == 7


def test_a_part_may_be_imported_and_the_fd_closed_at_once(context: l0py.Context, no_leaks: None) -> None:
    fd = os.memfd_create("test")
    os.ftruncate(fd, 8192)
    memory = context.import_dma_buf(fd, 100)
    os.close(fd)
    assert memory.size == 100
    memory.view()[99] = 1
    memory.close()


def test_an_import_is_exported_again(context: l0py.Context, memfd: int, no_leaks: None) -> None:
    memory = context.import_dma_buf(memfd)
    assert memory.exportable == "dma_buf"
    with memory.export() as first, memory.export() as second:
        memory.close()
        assert first.fileno() != second.fileno()
        assert first.identity == (os.fstat(memfd).st_dev, os.fstat(memfd).st_ino)
        with context.import_dma_buf(first) as again, mmap.mmap(memfd, 8192) as seen:
            again.view()[5] = 42
            assert seen[5] == 42


def test_whatever_has_a_fileno_may_be_imported(context: l0py.Context, no_leaks: None) -> None:
    with os.fdopen(os.memfd_create("test"), "w+b") as file:
        file.truncate(4096)
        context.import_dma_buf(file).close()
    with context.alloc_host(4096, exportable=True) as memory, memory.export() as fd:
        context.import_dma_buf(fd).close()
        context.import_dma_buf(np.int32(fd.fileno())).close()


def test_fd_0_is_a_descriptor_like_any_other(context: l0py.Context, memfd: int) -> None:
    saved = os.dup(0)
    try:
        os.dup2(memfd, 0)
        with context.import_dma_buf(0) as memory:
            assert memory.size == 8192
    finally:
        os.dup2(saved, 0)
        os.close(saved)


@pytest.mark.parametrize("what", ["pipe", "directory", "socket", "device", "closed", "closed object", "empty"])
def test_what_is_no_buffer(context: l0py.Context, what: str, no_leaks: None) -> None:
    if what == "closed object":
        fd = context.alloc_host(4096, exportable=True).export()
        fd.close()
        with pytest.raises(l0py.BadDescriptor, match="closed"):
            context.import_dma_buf(fd)
        return
    keep: list[Any] = []
    if what == "pipe":
        reader, writer = os.pipe()
        keep = [open(reader, "rb"), open(writer, "wb")]  # noqa: PTH123, SIM115
    elif what == "directory":
        reader = os.open("/", os.O_RDONLY)
        keep = [l0py.dmabuf.Fd(reader)]
    elif what == "socket":
        keep = list(socket.socketpair())
        reader = keep[0].fileno()
    elif what == "device":
        keep = [open("/dev/null", "rb")]  # noqa: PTH123, SIM115
        reader = keep[0].fileno()
    elif what == "empty":
        keep = [tempfile.TemporaryFile()]  # noqa: SIM115
        reader = keep[0].fileno()
    else:
        reader = 1 << 20
    try:
        with pytest.raises(l0py.BadDescriptor) as caught:
            context.import_dma_buf(reader)
        assert isinstance(caught.value, OSError)
        assert caught.value.errno == (errno.EBADF if what == "closed" else errno.EINVAL)
        assert caught.value.strerror == str(caught.value)
        assert str(reader) in str(caught.value)
    finally:
        for one in keep:
            one.close()


@pytest.mark.parametrize(
    ("size", "error"), [(0, ValueError), (-1, ValueError), (8193, ValueError), (1 << 70, ValueError), (1.5, TypeError)]
)
def test_sizes_that_cannot_be_imported(
    context: l0py.Context, memfd: int, size: Any, error: type[Exception], no_leaks: None
) -> None:
    with pytest.raises(error):
        context.import_dma_buf(memfd, size)


def test_what_is_no_descriptor_at_all(context: l0py.Context, memfd: int) -> None:
    for wrong in ("3", None, 3.0, b"3"):
        with pytest.raises(TypeError):
            context.import_dma_buf(wrong)  # type: ignore[arg-type]
    for number in (-1, 1 << 40):
        with pytest.raises(l0py.BadDescriptor):
            context.import_dma_buf(number)
    with pytest.raises(l0py.InvalidArgument, match="kind"):
        context.import_dma_buf(memfd, kind="magic")


def test_an_fd_that_cannot_be_written_is_imported_for_reading_alone(
    context: l0py.Context, memfd: int, no_leaks: None
) -> None:
    os.pwrite(memfd, b"x" * 4096, 0)
    with open(f"/proc/self/fd/{memfd}", "rb") as reader:  # noqa: PTH123
        with pytest.raises(l0py.BadDescriptor, match="no dma-buf"):
            context.import_dma_buf(reader)
        with context.import_dma_buf(reader, read_only=True) as memory:
            assert memory.read_only
            assert memory.numpy()[:1].tobytes() == b"x"
            with pytest.raises(ValueError, match="read-only"):
                memory.numpy()[0] = 1
            for write in (lambda: memory.fill(0), lambda: memory.copy_from(b"a")):
                with pytest.raises(l0py.InvalidArgument, match="read-only"):
                    write()


def test_a_file_is_no_buffer_to_a_driver(context: l0py.Context, no_leaks: None) -> None:
    # Not a temporary file: where /tmp is a tmpfs, its files are memory as good as a memfd's.
    with Path(sys.executable).open("rb") as file, pytest.raises(l0py.BadDescriptor, match="no dma-buf"):
        context.import_dma_buf(file)


def test_a_driver_that_refuses_all_but_dma_bufs(context: l0py.Context, memfd: int, no_leaks: None) -> None:
    softdriver.inject("zeMemAllocHost", result="ZE_RESULT_ERROR_INVALID_ARGUMENT")
    with pytest.raises(l0py.BadDescriptor, match=r"/memfd:test \(deleted\) is no dma-buf") as caught:
        context.import_dma_buf(memfd)
    assert caught.value.errno == errno.EINVAL


@pytest.mark.parametrize("read_only", [False, True])
def test_pages_of_the_process(context: l0py.Context, read_only: bool, no_leaks: None) -> None:
    with mmap.mmap(-1, 8192) as pages, context.import_buffer(pages, read_only=read_only) as memory:
        assert (memory.size, memory.origin, memory.read_only) == (8192, "pointer", read_only)
        assert memory.properties.type == "host"
        pages[0] = 5
        assert memory.view()[0] == 5
        assert memory.view().readonly == read_only


def test_a_numpy_array_lives_as_long_as_its_import(context: l0py.Context, no_leaks: None) -> None:
    whole = np.zeros(3 * 4096, "u1")
    start = -whole.ctypes.data % 4096
    array = whole[start : start + 4096]
    memory = context.import_pointer(array.ctypes.data, 4096, owner=array)
    del whole, array
    memory.copy_from(b"\6" * 4096)
    assert memory.numpy().sum() == 6 * 4096
    memory.close()


@pytest.mark.parametrize(
    ("address", "size"), [(0, 4096), (4097, 4096), (8192, 100), (8192, 0), (-4096, 4096), (4096, -4096)]
)
def test_pages_that_cannot_be_imported(context: l0py.Context, address: int, size: int, no_leaks: None) -> None:
    with pytest.raises(l0py.InvalidArgument, match="positive multiples"):
        context.import_pointer(address, size)


def test_pages_that_are_not_there(context: l0py.Context, no_leaks: None) -> None:
    with pytest.raises(l0py.InvalidArgument, match="zeMemAllocHost"):
        context.import_pointer(4096, 4096)


def test_a_driver_that_imports_no_pages(context: l0py.Context, monkeypatch: pytest.MonkeyPatch, no_leaks: None) -> None:
    monkeypatch.setattr(l0py.Driver, "extensions", {})
    with mmap.mmap(-1, 4096) as pages, pytest.raises(l0py.NotSupported, match="memmap_sysmem"):
        context.import_buffer(pages)


def test_what_is_imported_twice(context: l0py.Context, no_leaks: None) -> None:
    with (
        mmap.mmap(-1, 8192) as pages,
        context.import_buffer(pages),
        pytest.raises(l0py.InvalidArgument, match="zeMemAllocHost"),
    ):
        context.import_buffer(pages)


def test_a_buffer_that_may_not_be_written(context: l0py.Context, no_leaks: None) -> None:
    with pytest.raises(l0py.InvalidArgument, match="read_only=True"):
        context.import_buffer(bytes(4096))


def test_one_buffer_is_imported_twice(context: l0py.Context, device: l0py.Device, memfd: int, no_leaks: None) -> None:
    with (
        l0py.Context(device) as other,
        context.import_fd(memfd) as first,
        context.import_fd(memfd) as second,
        other.import_fd(memfd) as third,
    ):
        assert len({first.address, second.address, third.address}) == 3
        first.view()[0] = 8
        assert second.view()[0] == third.view()[0] == 8
        first.close()
        third.view()[1] = 9
        assert second.view()[1] == 9


def test_an_import_outlives_its_exporter_and_its_context(
    context: l0py.Context, device: l0py.Device, no_leaks: None
) -> None:
    with l0py.Context(device) as exporting:
        memory = exporting.alloc_host(4096, exportable=True)
        with memory.export() as fd:
            imported = context.import_fd(fd)
        memory.view()[0] = 3
        memory.close()
        assert imported.view()[0] == 3
    imported.view()[1] = 4
    with imported, imported.export() as fd, l0py.Context(device) as third, third.import_fd(fd) as again:
        assert again.numpy()[:2].tolist() == [3, 4]


EXPORTER = """
import socket, sys
import l0py
from l0py import dmabuf
kind = sys.argv[2]
with socket.socket(fileno=int(sys.argv[1])) as connection, l0py.Context(l0py.find_device(kind)) as context:
    memory = context.alloc_host(8192, exportable=True)
    memory.numpy()[:] = 42
    with memory.export() as fd:
        dmabuf.send(connection, fd)
    if sys.argv[3] == "waits":
        connection.recv(1)
        assert memory.numpy()[0] == 43, memory.numpy()[0]
        memory.close()
"""


def exporter(connection: socket.socket, kind: str, then: str) -> subprocess.Popen[str]:
    number = str(connection.fileno())
    command = [sys.executable, "-c", EXPORTER, number, kind, then]
    environment = {**os.environ, "L0PY_SOFTDRIVER": "npu,gpu"}
    return subprocess.Popen(command, env=environment, pass_fds=[connection.fileno()], stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("kind", ["npu", "gpu"])
def test_an_import_outlives_the_process_that_exported_it(context: l0py.Context, kind: str, no_leaks: None) -> None:
    here, there = socket.socketpair()
    with here, there:
        child = exporter(there, kind, "ends")
        _, [fd] = dmabuf.receive(here)
        assert child.wait(60) == 0, child.communicate()
        child.communicate()
        with fd, context.import_fd(fd) as memory:
            assert set(memory.numpy()) == {42}
            memory.numpy()[:] = 1
            assert memory.view()[8191] == 1


def test_two_living_processes_see_one_memory(context: l0py.Context, no_leaks: None) -> None:
    here, there = socket.socketpair()
    with here, there:
        child = exporter(there, "gpu", "waits")
        _, [fd] = dmabuf.receive(here)
        with fd, context.import_fd(fd) as memory:
            memory.view()[0] = 43
            here.send(b"x")
            assert child.communicate(timeout=60)[1] == ""
        assert child.returncode == 0


def test_an_exporter_that_is_killed_leaves_the_import_whole(context: l0py.Context, no_leaks: None) -> None:
    here, there = socket.socketpair()
    with here, there:
        child = exporter(there, "npu", "waits")
        _, [fd] = dmabuf.receive(here)
        with fd, context.import_fd(fd) as memory:
            child.kill()
            child.communicate()
            assert memory.numpy().sum() == 42 * 8192


SHRINKS = """
import os
import l0py
context = l0py.Context(l0py.find_device())
fd = os.memfd_create("test")
os.ftruncate(fd, 8192)
memory = context.import_fd(fd)
os.ftruncate(fd, 4096)
memory.view()[0] = 1
print("the first page is there", flush=True)
memory.view()[4096] = 1
print("and the second one", flush=True)
"""


def test_a_file_that_shrinks_under_its_import_ends_the_process(python: Any) -> None:
    """No driver can help that: a real dma-buf cannot shrink, and a memfd can be sealed."""
    done = python(SHRINKS)
    assert (done.returncode, done.stdout) == (-signal.SIGBUS, "the first page is there\n")


def test_a_sealed_memfd_cannot_shrink(context: l0py.Context, no_leaks: None) -> None:
    with dmabuf.Fd(os.memfd_create("test", os.MFD_ALLOW_SEALING)) as fd:
        os.ftruncate(fd.fileno(), 8192)
        fd.add_seals("shrink")
        with context.import_fd(fd) as memory:
            with pytest.raises(PermissionError):
                os.ftruncate(fd.fileno(), 4096)
            memory.numpy()[:] = 1


def test_a_file_that_shrank_before(context: l0py.Context, memfd: int, no_leaks: None) -> None:
    os.ftruncate(memfd, 4096)
    with pytest.raises(l0py.InvalidArgument, match="has 4096 bytes"):
        context.import_fd(memfd, 8192)


@pytest.mark.parametrize("type", [*external.WIN32_KINDS, None])
def test_windows_handles_where_there_are_none(
    context: l0py.Context,
    type: str | None,  # noqa: A002
    no_leaks: None,
) -> None:
    with pytest.raises(l0py.NotSupported, match=f"cannot import memory from {type or 'opaque_win32'}: it offers dma_"):
        context.import_win32(0x44, 4096, type=type)


def test_windows_handles_are_given_in_one_way(context: l0py.Context, no_leaks: None) -> None:
    for source, type in ntwin.KMT_SOURCES.items():  # noqa: A001
        with pytest.raises(l0py.NotSupported, match=f"cannot import memory from {type}"):
            context.import_win32(ntwin.KmtHandle(0x44, source), 4096)
    with pytest.raises(l0py.NotSupported, match="opaque_win32"):
        context.import_win32(wintypes.HANDLE(0x44), 4096)
    with pytest.raises(l0py.NotSupported, match="opaque_win32"):
        context.import_win32(None, 4096, name="a section")
    for wrong in (
        lambda: context.import_win32(None, 4096),
        lambda: context.import_win32(0x44, 4096, name="both"),
        lambda: context.import_win32(None, 4096, name="named", type="opaque_win32_kmt"),
        lambda: context.import_win32(None, 4096, name=""),
        lambda: context.import_win32(None, 4096, name="cut\0off"),
        lambda: context.import_win32(wintypes.HANDLE(), 4096),
        lambda: context.import_win32(0, 4096),
        lambda: context.import_win32(-1, 4096),
        lambda: context.import_win32(1 << 64, 4096),
        lambda: context.import_win32(0x44, 4096, type="dma_buf"),
        lambda: context.import_win32(0x44, 4096, kind="magic"),
        lambda: context.import_win32(0x44, 0),
    ):
        with pytest.raises(l0py.InvalidArgument):
            wrong()
    with pytest.raises(TypeError):
        context.import_win32("0x44", 4096)  # type: ignore[arg-type]


def test_kinds_and_types_that_are_none(context: l0py.Context, memfd: int, no_leaks: None) -> None:
    with pytest.raises(l0py.InvalidArgument, match="type 'opaque_win32' is none of 'dma_buf', 'opaque_fd'"):
        context.import_fd(memfd, type="opaque_win32")
    with pytest.raises(l0py.InvalidArgument, match="kind 'magic' is none of"):
        context.import_fd(memfd, kind="magic")
    with pytest.raises(l0py.NotSupported, match="cannot import memory from opaque_fd: it offers dma_buf"):
        context.import_fd(memfd, type="opaque_fd")
