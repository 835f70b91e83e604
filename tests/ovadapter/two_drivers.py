"""GPU memory on the NPU and back, with both software drivers in the process; run by test_share.py for each release.

Of the releases that the software GPU driver imitates, 22.43 imports no host memory and exports none, 26.13 leaves an
imported fd open, and 26.14 closes it.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from npu_helpers import last_pointers, nothing_leaks

import l0py
import ovadapter
from l0py import softdriver
from ovadapter import CopyRequired

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ODD = 4000
OLD = os.environ["L0PY_SOFTGPU_RELEASE"] == "22.43"


@pytest.fixture(scope="session")
def gpu() -> l0py.Device:
    return l0py.find_device("gpu")


@pytest.fixture
def graphics(gpu: l0py.Device) -> Iterator[l0py.Context]:
    """A context of the GPU."""
    with l0py.Context(gpu) as one:
        yield one


@pytest.fixture
def balanced() -> Iterator[None]:
    """Both drivers, and this process, hold as much after the test as before."""
    gc.collect()
    before = _gpu_holds()
    with nothing_leaks():
        yield
    gc.collect()
    assert _gpu_holds() == before


def _gpu_holds() -> dict[str, Any]:
    record = softdriver.record(driver="gpu")
    return {"objects": record["objects"], "memory": record["memory"]["now"]}


def write(memory: l0py.Memory, value: float) -> None:
    """By the GPU, if it is the GPU's: the host need not see the memory."""
    memory.fill(np.float32(value).tobytes())


def read(memory: l0py.Memory) -> Any:
    seen = np.empty(ODD, np.uint8)
    memory.copy_to(seen)
    return seen.view(np.float32)


#: Kinds of GPU memory by the way that they take to the NPU.
WAYS: list[tuple[Callable[[l0py.Context], l0py.Memory], str]] = [
    (lambda graphics: graphics.alloc_device(ODD, exportable=True), "dma_buf"),
    (lambda graphics: graphics.alloc_host(ODD), "host pages"),
    (lambda graphics: graphics.alloc_shared(ODD), "host pages"),
]
if not OLD:
    WAYS.append((lambda graphics: graphics.alloc_host(ODD, exportable=True), "dma_buf"))


def test_there_are_two_drivers(gpu: l0py.Device, npu: ovadapter.NpuContext) -> None:
    assert gpu.driver != npu.device.driver
    assert gpu.driver.is_software
    assert not gpu.can_access_peer(npu.device)
    assert (gpu.driver.api_version < (1, 5)) is OLD


@pytest.mark.parametrize("result_kind", ["host", "device"])
@pytest.mark.parametrize(("allocate", "way"), WAYS)
def test_from_the_gpu_through_the_npu_to_the_gpu(
    allocate: Callable[[l0py.Context], l0py.Memory],
    way: str,
    result_kind: str,
    npu: ovadapter.NpuContext,
    context: l0py.Context,
    graphics: l0py.Context,
    compiled: Any,
) -> None:
    request = compiled.create_infer_request()
    request.infer()
    write(warm := graphics.alloc_device(ODD), 0)  # the context's own queue
    read(warm)
    warm.close()
    result = getattr(context, f"alloc_{result_kind}")(ODD, exportable=True)
    image = allocate(graphics)
    with ovadapter.share(image, to=npu) as seen, ovadapter.share(result, to=graphics) as back:
        assert (seen.way, back.way) == (way, "dma_buf")
        assert dict(seen.tried)["peer access"] == "the devices belong to two drivers"
        assert back.memory.context is graphics
        assert back.memory.kind == ("device" if OLD or result_kind == "device" else "host")
        with npu.bind(request, {"xt": seen}, {"yt": result}) as binding:
            for value in (1, 7):  # the second is written after the hand-over
                write(image, value)
                binding.infer()
                assert (read(back.memory) == value + 1).all()
                assert seen.memory.address in last_pointers()
                assert binding.tensors["yt"].address in last_pointers()
                for verdict in binding.verdicts().values():
                    assert (verdict.copied, verdict.evidence) == (False, "driver record")
        seen.memory.numpy("f4")[:] = 20  # by the NPU's side; the GPU sees it
        assert (read(image) == 20).all()
        write(back.memory, 30)  # and the other way round
        assert (read(result) == 30).all()
    image.close()
    result.close()


@pytest.mark.usefixtures("balanced")
@pytest.mark.parametrize(("allocate", "way"), WAYS)
def test_nothing_is_left_behind(
    allocate: Callable[[l0py.Context], l0py.Memory],
    way: str,
    gpu: l0py.Device,
    npu: ovadapter.NpuContext,
    compiled: Any,
) -> None:
    with l0py.Context(gpu) as graphics, l0py.Context(npu.device) as context:
        for _ in range(3):
            image, result = allocate(graphics), context.alloc_host(ODD, exportable=True)
            seen, back = ovadapter.share(image, to=npu), ovadapter.share(result, to=graphics)
            assert seen.way == way
            request = compiled.create_infer_request()
            with npu.bind(request, {"xt": seen.memory}, {"yt": result}, restore=False) as binding:
                binding.infer()
            for one in (seen, back, image, result):
                one.close()
        ovadapter.share(allocate(graphics), to=npu)  # dropped at once
        del image, result, seen, back, request, binding, one


@pytest.mark.usefixtures("balanced")
def test_what_came_by_a_handle_outlives_the_gpu_context(gpu: l0py.Device, npu: ovadapter.NpuContext) -> None:
    graphics = l0py.Context(gpu)
    image = graphics.alloc_device(ODD, exportable=True)
    write(image, 3)
    shared = ovadapter.share(image, to=npu)
    image.close()
    graphics.close()
    assert (shared.memory.numpy("f4") == 3).all()
    shared.close()
    del image, graphics, shared


@pytest.mark.usefixtures("balanced")
def test_pages_stay_as_long_as_they_are_shared(gpu: l0py.Device, npu: ovadapter.NpuContext) -> None:
    with l0py.Context(gpu) as graphics:
        image = graphics.alloc_host(ODD)
        shared = ovadapter.share(image, to=npu)
        image.numpy("f4")[:] = 3
        image.close()
        assert (shared.memory.numpy("f4") == 3).all()
        shared.close()
        del image, shared


@pytest.mark.usefixtures("balanced")
def test_a_device_gets_a_context_of_its_own(gpu: l0py.Device, npu: ovadapter.NpuContext) -> None:
    with l0py.Context(gpu) as graphics, l0py.Context(npu.device) as context:
        with graphics.alloc_device(ODD, exportable=True) as image, ovadapter.share(image, to=npu.device) as shared:
            assert shared.way == "dma_buf"
            assert shared.memory.kind == "host"
            assert shared.memory.context.handle not in (npu.l0_context, context.handle)
        with context.alloc_host(ODD, exportable=True) as result, ovadapter.share(result, to=gpu) as back:
            assert back.memory.context.handle != graphics.handle
        assert back.memory.context.closed
        del image, shared, result, back


def test_device_memory_is_bound_directly_or_not_at_all(
    npu: ovadapter.NpuContext, graphics: l0py.Context, compiled: Any
) -> None:
    request = compiled.create_infer_request()
    with graphics.alloc_device(ODD, exportable=True) as image, npu.bind(request, {"xt": image}) as binding:
        write(image, 7)
        binding.infer()
        assert (request.get_tensor("yt").data == 8).all()
        assert binding.verdict("xt").copied is False
    with graphics.alloc_device(8192) as image:
        for allow_copy in (False, True):
            with pytest.raises(CopyRequired, match=r"^'x_alias': the host may not touch device memory") as caught:
                npu.bind(request, {"xt": image}, allow_copy=allow_copy)
            assert caught.value.way_out == "Allocate it with exportable=True, and leave the route open"


@pytest.mark.usefixtures("balanced")
def test_gpu_memory_without_a_way(gpu: l0py.Device, npu: ovadapter.NpuContext) -> None:
    with l0py.Context(gpu) as graphics:
        with graphics.alloc_device(ODD) as image, pytest.raises(CopyRequired) as caught:
            ovadapter.share(image, to=npu)
        assert caught.value.way_out == "Allocate it with exportable='dma_buf'"
        for reason in (
            "peer access: the devices belong to two drivers",
            "same context: the memory is another driver's",
            "dma_buf: it was not made exportable",
            "opaque_fd: it was not made exportable",
            "host pages: the host may not touch device memory",
        ):
            assert reason in caught.value.rule
        del image


@pytest.mark.usefixtures("balanced")
def test_the_npu_takes_no_opaque_fds(gpu: l0py.Device, npu: ovadapter.NpuContext) -> None:
    with l0py.Context(gpu) as graphics, l0py.Context(gpu) as second:
        if OLD:
            with pytest.raises(l0py.Error):  # it has dma-bufs alone
                graphics.alloc_device(ODD, exportable="opaque_fd")
            return
        with graphics.alloc_device(ODD, exportable="opaque_fd") as image:
            with pytest.raises(CopyRequired, match="opaque_fd: l0py software NPU does not import that kind") as caught:
                ovadapter.share(image, to=npu)
            assert caught.value.way_out == "Allocate it with exportable='dma_buf'"
            with ovadapter.share(image, to=second) as shared:  # two contexts of the GPU do
                assert shared.way in ("same context", "opaque_fd")
                write(image, 2)
                assert (read(shared.memory) == 2).all()
        del image, shared


@pytest.mark.usefixtures("balanced")
def test_a_gpu_that_does_not_import(gpu: l0py.Device, npu: ovadapter.NpuContext) -> None:
    function = "zeMemAllocDevice" if OLD else "zeMemAllocHost"
    with l0py.Context(gpu) as graphics, l0py.Context(npu.device) as context:
        with context.alloc_host(ODD, exportable=True) as result:
            softdriver.inject(function, 0, "ZE_RESULT_ERROR_INVALID_ARGUMENT", 0, driver="gpu")
            if OLD:
                softdriver.inject("zeMemAllocHost", 0, "ZE_RESULT_ERROR_INVALID_ARGUMENT", 0, driver="gpu")
            try:
                with pytest.raises(CopyRequired, match=r"dma_buf: .*INVALID_ARGUMENT"):
                    ovadapter.share(result, to=graphics)
            finally:
                softdriver.clear_faults(driver="gpu")
            with ovadapter.share(result, to=graphics) as back:
                assert back.way == "dma_buf"
        del result, back


def test_the_fds_are_nobody_elses(gpu: l0py.Device, npu: ovadapter.NpuContext) -> None:
    """Whatever the drivers close of what they are given, descriptors that others open meanwhile stay open."""
    with l0py.Context(gpu) as graphics, l0py.Context(npu.device) as context:
        image, result = graphics.alloc_device(ODD, exportable=True), context.alloc_host(ODD, exportable=True)
        for _ in range(20):
            mine = [os.open("/dev/null", os.O_RDONLY) for _ in range(3)]
            with ovadapter.share(image, to=npu), ovadapter.share(result, to=graphics):
                mine.append(os.open("/dev/null", os.O_RDONLY))
            for fd in mine:
                assert str(Path(f"/proc/self/fd/{fd}").readlink()) == "/dev/null"
                os.close(fd)
        image.close()
        result.close()
