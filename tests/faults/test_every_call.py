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


def import_pages(context: l0py.Context) -> None:
    with mmap.mmap(-1, 4096) as pages, context.import_buffer(pages) as memory:
        np.copyto(memory.numpy(), 2)


OPERATIONS: dict[str, Operation] = {
    operation.__name__: operation for operation in (allocate, copy, export_and_import, import_memfd, import_pages)
}
#: When these fail, it is the driver that keeps the object.
RELEASING = ("Destroy", "Free")


def in_a_context(device: l0py.Device, operation: Operation) -> None:
    with l0py.Context(device) as context:
        operation(context)


def calls_of(device: l0py.Device, operation: Operation) -> dict[str, int]:
    """The functions that it calls, and how often."""
    in_a_context(device, operation)  # what is asked once in a process is asked now
    softdriver.reset_record()
    softdriver.record_calls()
    try:
        in_a_context(device, operation)
        calls = softdriver.record()["calls"]
    finally:
        softdriver.record_calls(False)
    return {name: call["count"] for name, call in calls.items() if not any(word in name for word in RELEASING)}


@pytest.mark.parametrize("result", ["ZE_RESULT_ERROR_DEVICE_LOST", "ZE_RESULT_ERROR_NOT_AVAILABLE"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_any_call_may_fail(device: l0py.Device, name: str, result: str, no_leaks: None) -> None:
    operation = OPERATIONS[name]
    calls = calls_of(device, operation)
    assert calls
    failed = 0
    for function, count in calls.items():
        for number in range(count):
            softdriver.clear_faults()
            softdriver.inject(function, after=number, result=result)
            try:
                in_a_context(device, operation)
            except l0py.Error as error:
                failed += 1
                assert error.result is None or error.name == result, f"{function} {number}: {error}"  # noqa: PT017
    softdriver.clear_faults()
    assert failed > len(calls) // 2
    in_a_context(device, operation)
