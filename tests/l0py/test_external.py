"""What drivers do differently is played by the tests, on top of the software driver."""

from __future__ import annotations

import errno
import mmap
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import l0py
from l0py import external, lib, softdriver
from l0py._ffi import lib as c

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    """Each test learns anew how the driver exports."""
    external._new_fd_each_query.clear()
    yield
    external._new_fd_each_query.clear()


class Changed:
    """The C helpers with one of them replaced."""

    def __init__(self, **replaced: Callable[..., Any]) -> None:
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(c, name)


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


def test_an_export_that_is_fd_0(context: l0py.Context, no_leaks: None) -> None:
    with context.alloc_host(4096, exportable=True) as memory:
        saved = os.dup(0)
        os.close(0)
        try:
            with memory.export() as fd:
                assert fd.size == 4096
        finally:
            os.dup2(saved, 0)
            os.close(saved)


@pytest.mark.parametrize("what", ["pipe", "directory", "socket", "device", "closed", "closed object", "empty"])
def test_what_is_no_buffer(context: l0py.Context, what: str, no_leaks: None) -> None:
    import socket

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


def test_a_driver_that_closes_the_imported_fd(
    context: l0py.Context, memfd: int, monkeypatch: pytest.MonkeyPatch, no_leaks: None
) -> None:
    def alloc(box: Any, desc: Any, size: int, alignment: int) -> Any:
        made = c.l0_alloc_host(box, desc, size, alignment)
        if desc.pNext:
            os.close(lib.ffi.cast("ze_external_memory_import_fd_t*", desc.pNext).fd)
        return made

    monkeypatch.setattr(external, "_c", Changed(l0_alloc_host=alloc))
    context.import_dma_buf(memfd).close()
    assert os.fstat(memfd).st_size == 8192  # the caller's own is untouched


def test_a_driver_that_imports_less_than_asked(
    context: l0py.Context, memfd: int, monkeypatch: pytest.MonkeyPatch, no_leaks: None
) -> None:
    def shorter(_context: int, _address: int, _base: Any, size: Any) -> int:
        size[0] = 4096
        return 0

    monkeypatch.setattr(lib, "zeMemGetAddressRange", shorter)
    with pytest.raises(l0py.NotSupported, match="mapped 4096 of the 8192 bytes"):
        context.import_dma_buf(memfd)


def test_a_driver_that_makes_new_memory_instead_of_importing(
    context: l0py.Context, memfd: int, monkeypatch: pytest.MonkeyPatch, no_leaks: None
) -> None:
    """Some say SUCCESS all the same: found out by the pointer, or never tried."""

    def ignoring(box: Any, desc: Any, size: int, alignment: int) -> Any:
        plain = lib.ffi.new("ze_host_mem_alloc_desc_t*", {"stype": desc.stype})
        return c.l0_alloc_host(box, plain, size, alignment)

    monkeypatch.setattr(external, "_c", Changed(l0_alloc_host=ignoring))
    with pytest.raises(l0py.NotSupported, match="did not import"), mmap.mmap(-1, 4096) as pages:
        context.import_buffer(pages)
    monkeypatch.setattr(l0py.Driver, "api_version", (1, 3))
    with pytest.raises(l0py.NotSupported, match="too old to import host memory"):
        context.import_dma_buf(memfd)
    monkeypatch.setattr(l0py.Device, "type", "gpu")
    with pytest.raises(l0py.NotSupported, match="would ignore"):
        context.import_dma_buf(memfd, kind="shared")
    monkeypatch.setattr(l0py.Device, "external_memory", l0py.ExternalMemory(frozenset(), frozenset()))
    with pytest.raises(l0py.NotSupported, match="does not import dma-bufs"):
        context.import_dma_buf(memfd, kind="device")


def test_a_driver_that_refuses_all_but_dma_bufs(context: l0py.Context, memfd: int, no_leaks: None) -> None:
    softdriver.inject("zeMemAllocHost", result="ZE_RESULT_ERROR_INVALID_ARGUMENT")
    with pytest.raises(l0py.BadDescriptor, match=r"/memfd:test \(deleted\) is no dma-buf") as caught:
        context.import_dma_buf(memfd)
    assert caught.value.errno == errno.EINVAL


def test_an_export_is_the_same_memory(context: l0py.Context, no_leaks: None) -> None:
    with context.alloc_host(5000, exportable=True) as memory, memory.export() as first, memory.export() as second:
        assert first.identity == second.identity
        assert first.fileno() != second.fileno()
        seen = mmap.mmap(first.fileno(), 5000)
        seen[4999] = 9
        assert memory.view()[4999] == 9
        seen.close()
        memory.close()
        with context.import_dma_buf(second, 5000) as again:  # it lives on behind the descriptor
            assert again.view()[4999] == 9


def test_device_memory_is_exported_too(context: l0py.Context, no_leaks: None) -> None:
    with (
        context.alloc_device(4096, exportable="dma_buf") as memory,
        memory.export() as fd,
        context.import_dma_buf(fd) as seen,
    ):
        assert seen.size == 4096


def test_exports_that_were_not_asked_for(context: l0py.Context) -> None:
    with context.alloc_host(4096) as plain, pytest.raises(l0py.InvalidArgument, match="allocate it so"):
        plain.export()
    with context.alloc_host(4096, exportable=True) as memory, pytest.raises(l0py.InvalidArgument, match="opaque_fd"):
        memory.export("opaque_fd")
    with pytest.raises(l0py.InvalidArgument, match="'magic'"):
        context.alloc_host(4096, exportable="magic")


def test_a_driver_that_keeps_the_exported_fd(
    context: l0py.Context, memfd: int, monkeypatch: pytest.MonkeyPatch, no_leaks: None
) -> None:
    def kept(_context: int, _address: int, properties: Any, _device: Any) -> int:
        lib.ffi.cast("ze_external_memory_export_fd_t*", properties.pNext).fd = memfd
        return 0

    with context.alloc_host(4096, exportable=True) as memory:
        monkeypatch.setattr(lib, "zeMemGetAllocProperties", kept)
        with context.alloc_host(8193, exportable=True) as larger, pytest.raises(l0py.NotSupported, match="not the mem"):
            larger.export()
        for _ in range(3):
            with memory.export() as fd:
                assert fd.fileno() != memfd
        assert os.fstat(memfd).st_size == 8192


def test_a_driver_that_says_success_and_exports_nothing(
    context: l0py.Context, monkeypatch: pytest.MonkeyPatch, no_leaks: None
) -> None:
    with context.alloc_host(4096, exportable=True) as memory:
        monkeypatch.setattr(lib, "zeMemGetAllocProperties", lambda *_: 0)
        with pytest.raises(l0py.NotSupported, match="gave no file descriptor"):
            memory.export()


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
