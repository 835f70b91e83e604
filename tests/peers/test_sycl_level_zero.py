"""A SYCL Level Zero device on the software GPU driver, beside the NPU's: as far as SYCL goes, and where it stops.

SYCL's runtime brings a loader linked into it, which opens the one that l0py uses. dpctl hands out no native handles; a
C++ program asks `sycl::get_native`, and here its function in SYCL's library is called.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from npu_helpers import nothing_leaks
from peer_helpers import COUNT, PAGE, SIZE, Runtime, require

import l0py
import ovadapter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peer_helpers import Exchange

SELECTOR = {"ONEAPI_DEVICE_SELECTOR": "level_zero:*"}


@pytest.fixture
def runtime() -> Runtime:
    require("dpctl")
    return Runtime({"L0PY_SOFTDRIVER": "npu,gpu", **SELECTOR})


@pytest.fixture
def queue(runtime: Runtime) -> Any:
    """Made in SYCL's own process alone."""
    if "L0PY_PEER_CHILD" not in os.environ:
        return None
    import dpctl

    return dpctl.SyclQueue("level_zero:gpu", property="in_order")


@pytest.fixture
def sycl_context(queue: Any) -> Iterator[l0py.Context | None]:
    """SYCL's own context, borrowed."""
    if queue is None:
        yield None
        return
    get_native = ctypes.CDLL("libsycl.so.9")._ZNK4sycl3_V17context9getNativeEv  # sycl::context::getNative() const
    get_native.argtypes, get_native.restype = [ctypes.c_void_p], ctypes.c_size_t
    native = get_native(queue.sycl_context.addressof_ref())
    with l0py.Context.from_handle(native, l0py.find_device("gpu"), owner=queue) as context:
        yield context


class Usm:
    """l0py's memory as SYCL takes others' arrays."""

    def __init__(self, memory: l0py.Memory, queue: Any) -> None:
        self.memory = memory
        self.__sycl_usm_array_interface__ = {
            "data": (memory.address, False),
            "shape": (memory.size,),
            "strides": None,
            "typestr": "|u1",
            "version": 1,
            "syclobj": queue,
        }


def allocate(kind: str, queue: Any) -> Any:
    import dpctl.memory

    return getattr(dpctl.memory, f"MemoryUSM{kind}")(SIZE, alignment=PAGE, queue=queue)


def write(usm: Any, values: Any) -> None:
    """By the GPU: SYCL's queue copies."""
    usm.copy_from_host(values.astype(np.float32).view(np.uint8))


def read(usm: Any) -> Any:
    values = np.empty(COUNT, np.float32)
    usm.copy_to_host(values.view(np.uint8))
    return values


@pytest.mark.own_process
def test_queues_copy_and_fill(runtime: Runtime, queue: Any) -> None:
    """Between all kinds of memory; commands wait for those that they are told to."""
    import dpctl

    device = queue.sycl_device
    assert (device.name.strip(), device.backend.name, device.is_gpu) == ("l0py software GPU", "level_zero", True)
    assert device.global_mem_size == l0py.find_device("gpu").memory[0].size
    kinds = ["Host", "Device", "Shared", "Device"]
    loose = dpctl.SyclQueue(queue.sycl_context, device)  # nothing in it is in order
    chain = [allocate(kind, queue) for kind in kinds]
    values = np.arange(COUNT, dtype=np.float32)
    write(chain[0], values)
    done: list[Any] = []
    for source, target in itertools.pairwise(chain):
        done.append(loose.memcpy_async(target, source, SIZE, done[-1:]))
    done[-1].wait()
    assert (read(chain[-1]) == values).all()
    chain[-1].memset(1)
    assert read(chain[-1]).view(np.uint8).tolist() == [1] * SIZE


@pytest.mark.own_process
def test_profiling(runtime: Runtime, queue: Any) -> None:
    import dpctl

    timed = dpctl.SyclQueue(queue.sycl_device, property="enable_profiling")
    first, second = (timed.memcpy_async(allocate("Device", timed), allocate("Device", timed), SIZE) for _ in range(2))
    timed.wait()
    assert 0 < first.profiling_info_start < first.profiling_info_end <= second.profiling_info_end


@pytest.mark.own_process
@pytest.mark.parametrize("kind", ["Host", "Shared"])
def test_usm_in_inference_usm_out(
    runtime: Runtime, queue: Any, exchange: Exchange, context: l0py.Context, kind: str
) -> None:
    """Memory that SYCL allocated, and the host sees, is the NPU's input and output."""

    def run() -> None:
        x, y = allocate(kind, queue), allocate(kind, queue)
        with context.import_array(x) as source, context.import_array(y) as target:
            assert source.address == x.__sycl_usm_array_interface__["data"][0]
            exchange(source, target, lambda values: write(x, values), lambda: read(y))

    run()
    with nothing_leaks():
        run()


@pytest.mark.own_process
def test_device_memory_for_sycl_and_the_npu(
    runtime: Runtime, queue: Any, sycl_context: l0py.Context, exchange: Exchange, npu: ovadapter.NpuContext
) -> None:
    """l0py allocates it exportable in SYCL's context: for SYCL it is USM like its own, and the NPU imports it."""
    import dpctl.memory

    with sycl_context.alloc_device(SIZE, exportable=True) as x, sycl_context.alloc_device(SIZE, exportable=True) as y:
        source, target = (dpctl.memory.as_usm_memory(Usm(memory, queue)) for memory in (x, y))
        assert (source.get_usm_type(), target.get_usm_type()) == ("device", "device")
        with ovadapter.share(x, to=npu) as shared, ovadapter.share(y, to=npu) as result:
            assert (shared.way, result.way) == ("dma_buf", "dma_buf")
            exchange(shared, result, lambda values: write(source, values), lambda: read(target))


@pytest.mark.own_process
def test_native_handles(runtime: Runtime, queue: Any, sycl_context: l0py.Context) -> None:
    """What SYCL allocated is memory of its context for l0py as well, and both read what the other writes."""
    gpu = l0py.find_device("gpu").handle
    for kind, device in {"Host": 0, "Device": gpu, "Shared": gpu}.items():
        usm = allocate(kind, queue)
        address = usm.__sycl_usm_array_interface__["data"][0]
        properties = sycl_context.alloc_properties(address)
        assert (properties.type, properties.device) == (kind.lower(), device)
        memory = l0py.Memory.from_handle(address, SIZE, context=sycl_context, kind=kind.lower(), owner=usm)
        memory.copy_from(np.full(COUNT, 3, np.float32))
        assert (read(usm) == 3).all()
        write(usm, np.full(COUNT, 4))
        seen = np.empty(COUNT, np.float32)
        memory.copy_to(seen)
        assert (seen == 4).all()
        memory.close()


@pytest.mark.own_process
def test_where_device_memory_of_sycl_stops(
    runtime: Runtime, queue: Any, sycl_context: l0py.Context, context: l0py.Context
) -> None:
    """SYCL allocates nothing exportable: for the NPU there is no way to it but a copy, and none is made in silence."""
    usm = allocate("Device", queue)
    with pytest.raises(l0py.Error, match="the host may not touch that memory"):
        context.import_array(usm)
    address = usm.__sycl_usm_array_interface__["data"][0]
    memory = l0py.Memory.from_handle(address, SIZE, context=sycl_context, kind="device", owner=usm)
    with pytest.raises(l0py.Error, match="not made exportable"):
        memory.export()


@pytest.mark.own_process
def test_where_kernels_stop(runtime: Runtime, queue: Any) -> None:
    """The software GPU has none: it makes no module of any program. It has no sub-devices either."""
    import dpctl
    import dpctl.program

    with pytest.raises(dpctl.program.SyclProgramCompilationError):
        dpctl.program.create_program_from_source(queue, "kernel void one(global int *out) { *out = 1; }")
    with pytest.raises(dpctl.SyclSubDeviceCreationError):
        queue.sycl_device.create_sub_devices(partition=2)


WITHOUT_L0PY = """
import dpctl, dpctl.memory, sys
usm = dpctl.memory.MemoryUSMHost(4096, queue=dpctl.SyclQueue("level_zero:gpu"))
usm.memset(7)
print(bytes(usm)[:3], "l0py" in sys.modules)
"""


def test_a_program_that_knows_nothing_of_l0py() -> None:
    """SYCL's own loader opens the one that it finds, and that one the drivers that the environment names."""
    require("dpctl")
    program = [sys.executable, "-c", WITHOUT_L0PY]
    done = subprocess.run(
        [sys.executable, "-m", "l0py", "softdriver", "--drivers", "gpu", "--", *program],
        env={**os.environ, "L0PY_SOFTDRIVER": "0", **SELECTOR},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout.strip() == "b'\\x07\\x07\\x07' False", done.stderr
