"""Whatever is wrong gets its documented error, each time, and leaves nothing behind."""

from __future__ import annotations

import mmap
import os
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import l0py
from l0py import dmabuf

TIMES = 50


def closed_fd(context: l0py.Context) -> None:
    with context.alloc_host(4096, exportable=True) as memory:
        fd = memory.export()
        number = fd.fileno()
        fd.close()
        context.import_dma_buf(number)


def fd_0_that_is_no_buffer(context: l0py.Context) -> None:
    saved = os.dup(0)
    with open("/dev/null", "rb") as null:  # noqa: PTH123
        os.dup2(null.fileno(), 0)
    try:
        context.import_dma_buf(0)
    finally:
        os.dup2(saved, 0)
        os.close(saved)


def pipe(context: l0py.Context) -> None:
    with ExitStack() as both:
        reader, _ = (both.enter_context(dmabuf.Fd(fd)) for fd in os.pipe())
        context.import_dma_buf(reader)


def directory(context: l0py.Context) -> None:
    with dmabuf.Fd(os.open("/", os.O_RDONLY)) as fd:
        context.import_dma_buf(fd)


def socket_fd(context: l0py.Context) -> None:
    here, there = socket.socketpair()
    with here, there:
        context.import_fd(here)


def truncated_file(context: l0py.Context) -> None:
    with dmabuf.Fd(os.memfd_create("short")) as fd:
        os.ftruncate(fd.fileno(), 8192)
        os.ftruncate(fd.fileno(), 4096)
        context.import_fd(fd, 8192)


def file_on_a_disk(context: l0py.Context) -> None:
    with Path(sys.executable).open("rb") as file:
        context.import_fd(file)


def wrong_type(context: l0py.Context) -> None:
    with dmabuf.Fd(os.memfd_create("memory")) as fd:
        os.ftruncate(fd.fileno(), 4096)
        context.import_fd(fd, type="d3d12_heap")


def type_that_is_not_offered(context: l0py.Context) -> None:
    with dmabuf.Fd(os.memfd_create("memory")) as fd:
        os.ftruncate(fd.fileno(), 4096)
        context.import_fd(fd, type="opaque_fd")


def wrong_kind(context: l0py.Context) -> None:
    with context.alloc_host(4096, exportable=True) as memory, memory.export() as fd:
        context.import_fd(fd, kind="magic")


def export_of_another_kind(context: l0py.Context) -> None:
    with context.alloc_host(4096, exportable=True) as memory:
        memory.export("opaque_fd")


def export_after_close(context: l0py.Context) -> None:
    with context.alloc_host(4096, exportable=True) as memory:
        pass
    memory.export()


def view_past_the_context(context: l0py.Context) -> None:
    with l0py.Context(context.driver) as other:
        memory = other.alloc_host(4096)
        view = memory.view()
    view[0] = 1  # the pages are still there
    assert view[0] == 1
    del view
    try:
        memory.view()
    finally:
        memory.close()


def smaller_than_wanted(context: l0py.Context) -> None:
    with context.alloc_host(4096, exportable=True) as memory, memory.export() as fd:
        context.import_dma_buf(fd, 4097)


def no_bytes_of_a_buffer(context: l0py.Context) -> None:
    with context.alloc_host(4096, exportable=True) as memory, memory.export() as fd:
        context.import_dma_buf(fd, 0)


def empty_buffer(context: l0py.Context) -> None:
    with dmabuf.Fd(os.memfd_create("empty")) as fd:
        context.import_dma_buf(fd)


def more_than_any_buffer(context: l0py.Context) -> None:
    with context.alloc_host(4096, exportable=True) as memory, memory.export() as fd:
        context.import_dma_buf(fd, 1 << 63)


def misaligned_pointer(context: l0py.Context) -> None:
    with mmap.mmap(-1, 8192) as pages:
        array = np.frombuffer(pages, "u1")
        address = array.ctypes.data
        del array
        context.import_pointer(address + 1, 4096)


def freed_memory(context: l0py.Context) -> None:
    memory = context.alloc_host(4096)
    memory.close()
    memory.numpy()


def memory_of_a_closed_context(context: l0py.Context) -> None:
    with l0py.Context(context.driver) as other:
        memory = other.alloc_host(4096)
    try:
        memory.copy_from(b"a")
    finally:
        memory.close()


def closed_context(context: l0py.Context) -> None:
    other = l0py.Context(context.driver)
    other.close()
    other.alloc_host(4096)


def closed_under_a_view(context: l0py.Context) -> None:
    memory = context.alloc_host(4096)
    view = memory.view()
    try:
        memory.close()
    finally:
        del view
        memory.close()


def wrong_shape(context: l0py.Context) -> None:
    with context.alloc_host(4096) as memory:
        memory.numpy("f4", (32, 33))


def copy_of_a_freed_source(context: l0py.Context) -> None:
    with context.alloc_host(4096) as memory:
        source = context.alloc_host(4096)
        source.close()
        memory.copy_from(source)


Case = tuple[Callable[[l0py.Context], Any], type[Exception], type[Exception]]

CASES: list[Case] = [
    (closed_fd, l0py.BadDescriptor, OSError),
    (fd_0_that_is_no_buffer, l0py.BadDescriptor, OSError),
    (pipe, l0py.BadDescriptor, OSError),
    (directory, l0py.BadDescriptor, OSError),
    (socket_fd, l0py.BadDescriptor, OSError),
    (truncated_file, l0py.InvalidArgument, ValueError),
    (file_on_a_disk, l0py.BadDescriptor, OSError),
    (wrong_type, l0py.InvalidArgument, ValueError),
    (type_that_is_not_offered, l0py.NotSupported, NotImplementedError),
    (wrong_kind, l0py.InvalidArgument, ValueError),
    (export_of_another_kind, l0py.InvalidArgument, ValueError),
    (export_after_close, l0py.Closed, ValueError),
    (view_past_the_context, l0py.Closed, ValueError),
    (lambda context: context.alloc_host(4096, exportable="magic"), l0py.InvalidArgument, ValueError),
    (lambda context: context.alloc_host(4096, exportable="opaque_fd"), l0py.NotSupported, NotImplementedError),
    (lambda context: context.import_win32(0x44, 4096), l0py.NotSupported, NotImplementedError),
    (lambda context: context.import_win32(None, 4096), l0py.InvalidArgument, ValueError),
    (lambda context: context.create_image(16, 16), l0py.NotSupported, NotImplementedError),
    (lambda context: context.create_physical(4096), l0py.NotSupported, NotImplementedError),
    (lambda context: context.reserve(4096), l0py.NotSupported, NotImplementedError),
    (lambda context: context.open_ipc(bytes(64)), l0py.NotSupported, NotImplementedError),
    (lambda context: context.open_ipc(bytes(63)), l0py.InvalidArgument, ValueError),
    (smaller_than_wanted, l0py.InvalidArgument, ValueError),
    (no_bytes_of_a_buffer, l0py.InvalidArgument, ValueError),
    (empty_buffer, l0py.BadDescriptor, OSError),
    (more_than_any_buffer, l0py.InvalidArgument, ValueError),
    (misaligned_pointer, l0py.InvalidArgument, ValueError),
    (lambda context: context.import_pointer(4096, 0), l0py.InvalidArgument, ValueError),
    (lambda context: context.import_pointer(4096, 1 << 64), l0py.InvalidArgument, ValueError),
    (freed_memory, l0py.Closed, ValueError),
    (memory_of_a_closed_context, l0py.Closed, ValueError),
    (closed_context, l0py.Closed, ValueError),
    (closed_under_a_view, l0py.InUse, BufferError),
    (wrong_shape, l0py.InvalidArgument, ValueError),
    (copy_of_a_freed_source, l0py.Closed, ValueError),
    (lambda context: context.alloc_host(0), l0py.InvalidArgument, ValueError),
    (lambda context: context.alloc_host(-1), l0py.InvalidArgument, ValueError),
    (lambda context: context.alloc_host(1 << 60), l0py.OutOfMemory, MemoryError),
    (lambda context: context.alloc_shared(1 << 60), l0py.OutOfMemory, MemoryError),
    (lambda context: context.alloc_device(1 << 60), l0py.OutOfMemory, MemoryError),
    (lambda context: context.alloc_shared(4096, alignment=24), l0py.InvalidArgument, ValueError),
    (lambda context: l0py.find_device("fpga"), l0py.NoDevice, LookupError),
]


@pytest.mark.parametrize(("wrong", "error", "builtin"), CASES)
def test_a_wrong_call(
    device: l0py.Device, wrong: Callable[[l0py.Context], Any], error: type, builtin: type, no_leaks: None
) -> None:
    with l0py.Context(device) as context:
        for _ in range(TIMES):
            with pytest.raises(error) as caught:
                wrong(context)
            assert isinstance(caught.value, builtin)
            assert str(caught.value)


def stale_ipc_handle(context: l0py.Context) -> None:
    with context.alloc_device(4096) as memory, memory.ipc_handle() as handle:
        stale = bytes(handle)
    context.open_ipc(stale)


def closed_ipc_handle(context: l0py.Context) -> None:
    with context.alloc_device(4096) as memory, memory.ipc_handle() as handle:
        pass
    context.open_ipc(handle)


def ignored_import(context: l0py.Context) -> None:
    with context.alloc_host(4096, exportable=True) as memory, memory.export() as fd:
        context.import_fd(fd, kind="shared")


def image_in_too_small_a_buffer(context: l0py.Context) -> None:
    with context.alloc_device(4096, exportable=True) as memory, memory.export() as fd:
        context.create_image(1000, 1000, fd=fd)


def image_of_a_pipe(context: l0py.Context) -> None:
    with ExitStack() as both:
        reader, _ = (both.enter_context(dmabuf.Fd(fd)) for fd in os.pipe())
        context.create_image(16, 16, fd=reader)


def mapping_of_closed_memory(context: l0py.Context) -> None:
    with context.create_physical(65536) as physical:
        pass
    with context.reserve(65536) as addresses:
        addresses.map(physical)


def mapping_beyond_the_range(context: l0py.Context) -> None:
    with context.create_physical(65536) as physical, context.reserve(65536) as addresses:
        addresses.map(physical, at=65536)


def physical_memory_of_half_a_page(context: l0py.Context) -> None:
    with context.alloc_device(4096, exportable=True) as memory, memory.export() as fd:
        context.import_physical(fd, 2048)


GPU_CASES: list[Case] = [
    (stale_ipc_handle, l0py.InvalidArgument, ValueError),
    (closed_ipc_handle, l0py.Closed, ValueError),
    (ignored_import, l0py.NotSupported, NotImplementedError),
    (image_in_too_small_a_buffer, l0py.InvalidArgument, ValueError),
    (image_of_a_pipe, l0py.BadDescriptor, OSError),
    (mapping_of_closed_memory, l0py.Closed, ValueError),
    (mapping_beyond_the_range, l0py.InvalidArgument, ValueError),
    (physical_memory_of_half_a_page, l0py.InvalidArgument, ValueError),
    (lambda context: context.create_image(0, 16), l0py.InvalidArgument, ValueError),
    (lambda context: context.create_image(16, 16, layout="ayuv"), l0py.NotSupported, NotImplementedError),
    (lambda context: context.reserve(65537), l0py.InvalidArgument, ValueError),
]


@pytest.mark.parametrize(("wrong", "error", "builtin"), GPU_CASES)
def test_a_wrong_call_to_the_gpu(
    gpu: l0py.Device, wrong: Callable[[l0py.Context], Any], error: type, builtin: type, no_leaks: None
) -> None:
    test_a_wrong_call(gpu, wrong, error, builtin, no_leaks)


def test_a_second_close_does_nothing(device: l0py.Device, no_leaks: None) -> None:
    context = l0py.Context(device)
    memory = context.alloc_host(4096, exportable=True)
    fd = memory.export()
    for one in (fd, memory, context):
        for _ in range(3):
            one.close()
