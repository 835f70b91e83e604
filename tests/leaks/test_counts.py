"""Objects are counted on Python's side and on the driver's: as many as were made, and none when they are gone."""

from __future__ import annotations

import gc
import mmap
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import l0py
from l0py import handles, softdriver

MANY = 64

Maker = Callable[[l0py.Context], Any]


def imported(context: l0py.Context) -> l0py.Memory:
    fd = os.memfd_create("test")
    try:
        os.ftruncate(fd, 4096)
        return context.import_dma_buf(fd)
    finally:
        os.close(fd)


def opened(context: l0py.Context) -> l0py.Memory:
    with context.alloc_device(4096) as memory, memory.ipc_handle() as handle:
        return context.open_ipc(handle)


MAKERS: dict[str, tuple[Maker, str]] = {
    "host": (lambda context: context.alloc_host(4096), "blocks"),
    "device": (lambda context: context.alloc_device(4096), "blocks"),
    "shared": (lambda context: context.alloc_shared(4096), "blocks"),
    "exportable": (lambda context: context.alloc_host(4096, exportable=True), "blocks"),
    "dma_buf": (imported, "imported_fds"),
    "pages": (lambda context: context.import_buffer(mmap.mmap(-1, 4096)), "imported_pages"),
}


#: What the GPU driver alone has: how one is made, and what it is called in l0py's counts and in the driver's.
GPU_MAKERS: dict[str, tuple[Maker, str, str]] = {
    "image": (lambda context: context.create_image(16, 16), "image", "image"),
    "physical memory": (lambda context: context.create_physical(65536), "physical_memory", "physical_mem"),
    "reservation": (lambda context: context.reserve(65536), "reservation", ""),
    "mapping": (lambda context: context.reserve(65536).map(context.create_physical(65536)), "mapping", "physical_mem"),
    "IPC handle": (lambda context: context.alloc_device(4096).ipc_handle(), "ipc_handle", ""),
    "IPC memory": (opened, "ipc_memory", ""),
}


@pytest.mark.parametrize("how", ["close", "collect"])
@pytest.mark.parametrize("name", GPU_MAKERS)
def test_what_a_gpu_has_is_counted_and_gone(gpu: l0py.Device, name: str, how: str, no_leaks: None) -> None:
    make, ours, theirs = GPU_MAKERS[name]

    def counts() -> tuple[int, int]:
        return handles.live_objects()[ours], softdriver.record(driver="gpu")["objects"].get(theirs, 0)

    with l0py.Context(gpu) as context:
        before = counts()
        made = [make(context) for _ in range(MANY)]
        assert counts() == (before[0] + MANY, before[1] + (MANY if theirs else 0))
        if how == "close":
            for one in made:
                one.close()
            assert counts()[0] == before[0]
            del one
        del made
        gc.collect()
        assert counts() == before


def open_fds() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def native(figure: str) -> int:
    return int(softdriver.record()["memory"][figure])


@pytest.mark.parametrize("how", ["close", "collect"])
@pytest.mark.parametrize("name", MAKERS)
def test_memory_is_counted_and_gone(device: l0py.Device, name: str, how: str, no_leaks: None) -> None:
    make, figure = MAKERS[name]
    with l0py.Context(device) as context:
        before = native(figure)
        made = [make(context) for _ in range(MANY)]
        assert native(figure) == before + MANY
        assert handles.live_objects()["memory"] >= MANY
        if how == "close":
            for memory in made:
                memory.close()
        del made
        gc.collect()
        if how == "close":
            memory.close()
            del memory
        assert native(figure) == before


def test_contexts_are_counted_and_gone(device: l0py.Device, no_leaks: None) -> None:
    before = softdriver.record()["objects"].get("context", 0)
    made = [l0py.Context(device) for _ in range(MANY)]
    assert softdriver.record()["objects"]["context"] == before + MANY
    for context in made[::2]:
        context.close()
    del made, context
    gc.collect()


def test_exports_are_the_only_descriptors(device: l0py.Device, no_leaks: None) -> None:
    with l0py.Context(device) as context, context.alloc_host(4096, exportable=True) as memory:
        memory.export().close()
        before = open_fds()
        made = [memory.export() for _ in range(MANY)]
        assert open_fds() == before + MANY
        del made


def test_when_descriptors_run_out(device: l0py.Device, no_leaks: None) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with l0py.Context(device) as context, context.alloc_host(4096, exportable=True) as memory:
        memory.export().close()
        fd = memory.export()
        opened = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_fds() + 8, hard))
        try:
            try:
                while True:
                    opened.append(os.dup(0))
            except OSError:
                pass
            for wrong in (memory.export, lambda: context.import_dma_buf(fd)):
                with pytest.raises((OSError, MemoryError)):
                    wrong()
        finally:
            for number in opened:
                os.close(number)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        context.import_dma_buf(fd).close()
        fd.close()


def test_threads_leave_nothing(device: l0py.Device, no_leaks: None) -> None:
    failures: list[BaseException] = []

    def work(context: l0py.Context) -> None:
        try:
            for _ in range(30):
                with (
                    context.alloc_host(4096, exportable=True) as memory,
                    memory.export() as fd,
                    context.import_dma_buf(fd) as other,
                ):
                    other.fill(1)
                    memory.copy_from(other)
        except BaseException as error:
            failures.append(error)

    with l0py.Context(device) as context:
        threads = [threading.Thread(target=work, args=(context,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures
