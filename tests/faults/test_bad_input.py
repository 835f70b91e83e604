"""Whatever is wrong gets its documented error, each time, and leaves nothing behind."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from contextlib import ExitStack
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


def test_a_second_close_does_nothing(device: l0py.Device, no_leaks: None) -> None:
    context = l0py.Context(device)
    memory = context.alloc_host(4096, exportable=True)
    fd = memory.export()
    for one in (fd, memory, context):
        for _ in range(3):
            one.close()
