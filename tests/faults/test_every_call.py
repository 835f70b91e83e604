"""Every call that an operation makes fails once: the answer is an error of ours, and nothing is left behind."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable

import numpy as np
import pytest

import l0py
from l0py import softdriver

Operation = Callable[[l0py.Context], None]


def allocate(context: l0py.Context) -> None:
    for kind in ("host", "device", "shared"):
        with getattr(context, f"alloc_{kind}")(4096) as memory:
            memory.properties  # noqa: B018
            memory.range()


def copy(context: l0py.Context) -> None:
    with context.alloc_host(4096) as host, context.alloc_device(4096) as local:
        host.fill(3)
        local.copy_from(host)
        local.copy_from(b"through staging")
        local.copy_to(bytearray(4096))


def export_and_import(context: l0py.Context) -> None:
    with context.alloc_host(4096, exportable=True) as memory, memory.export() as fd:
        for kind in ("host", "device", "shared"):
            context.import_dma_buf(fd, kind=kind).close()


def import_memfd(context: l0py.Context) -> None:
    fd = os.memfd_create("test")
    try:
        os.ftruncate(fd, 4096)
        with context.import_dma_buf(fd) as memory:
            memory.numpy()[:] = 1
    finally:
        os.close(fd)


def images(context: l0py.Context) -> None:
    with context.create_image(16, 16, exportable=True) as image, image.export() as fd:
        image.copy_from(bytes(1024))
        with context.create_image(16, 16, fd=fd) as again:
            again.copy_to(bytearray(1024))
            again.properties  # noqa: B018


def virtual_memory(context: l0py.Context) -> None:
    with (
        context.create_physical(65536, exportable=True) as physical,
        physical.export() as fd,
        context.import_physical(fd) as again,
        context.reserve(131072) as addresses,
        addresses.map(physical) as first,
        addresses.map(again, at=65536) as second,
    ):
        addresses.set_access("read_write")
        addresses.access()
        second.copy_from(first)


def ipc(context: l0py.Context) -> None:
    with context.alloc_device(4096) as memory, memory.ipc_handle() as handle, handle.to_fd():
        context.open_ipc(handle).close()


def export_and_import_device_memory(context: l0py.Context) -> None:
    with context.alloc_device(4096, exportable="opaque_fd") as memory, memory.export() as fd:
        for kind in ("host", "device"):
            context.import_fd(fd, type="opaque_fd", kind=kind).close()


def import_pages(context: l0py.Context) -> None:
    with mmap.mmap(-1, 4096) as pages, context.import_buffer(pages) as memory:
        np.copyto(memory.numpy(), 2)


OPERATIONS: dict[str, Operation] = {
    operation.__name__: operation for operation in (allocate, copy, export_and_import, import_memfd, import_pages)
}
GPU_OPERATIONS: dict[str, Operation] = {
    operation.__name__: operation
    for operation in (allocate, copy, export_and_import_device_memory, images, virtual_memory, ipc)
}
#: When these fail, it is the driver that keeps the object.
RELEASING = ("Destroy", "Free", "Unmap", "CloseIpc", "PutIpc")


def in_a_context(device: l0py.Device, operation: Operation) -> None:
    with l0py.Context(device) as context:
        operation(context)


def calls_of(device: l0py.Device, operation: Operation) -> dict[str, int]:
    """The functions that it calls, and how often."""
    in_a_context(device, operation)  # what is asked once in a process is asked now
    softdriver.reset_record(driver=device.type)
    softdriver.record_calls(driver=device.type)
    try:
        in_a_context(device, operation)
        calls = softdriver.record(driver=device.type)["calls"]
    finally:
        softdriver.record_calls(False, driver=device.type)
    return {name: call["count"] for name, call in calls.items() if not any(word in name for word in RELEASING)}


@pytest.mark.parametrize("result", ["ZE_RESULT_ERROR_DEVICE_LOST", "ZE_RESULT_ERROR_NOT_AVAILABLE"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_any_call_may_fail(device: l0py.Device, name: str, result: str, no_leaks: None) -> None:
    fail_each(device, OPERATIONS[name], result)


@pytest.mark.parametrize("result", ["ZE_RESULT_ERROR_DEVICE_LOST", "ZE_RESULT_ERROR_NOT_AVAILABLE"])
@pytest.mark.parametrize("name", GPU_OPERATIONS)
def test_any_call_to_the_gpu_may_fail(gpu: l0py.Device, name: str, result: str, no_leaks: None) -> None:
    fail_each(gpu, GPU_OPERATIONS[name], result)


def fail_each(device: l0py.Device, operation: Operation, result: str) -> None:
    calls = calls_of(device, operation)
    assert calls
    failed = 0
    for function, count in calls.items():
        for number in range(count):
            softdriver.clear_faults(driver=device.type)
            softdriver.inject(function, after=number, result=result, driver=device.type)
            try:
                in_a_context(device, operation)
            except l0py.Error as error:
                failed += 1
                assert error.result is None or error.name == result, f"{function} {number}: {error}"  # noqa: PT017
    softdriver.clear_faults(driver=device.type)
    assert failed > len(calls) // 2
    in_a_context(device, operation)
