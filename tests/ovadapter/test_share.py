"""Sharing between contexts of one driver, what is refused, and the runs with a GPU beside the NPU (two_drivers.py)."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from npu_helpers import last_pointers, nothing_leaks

import l0py
import ovadapter
from l0py import softdriver
from ovadapter import CopyRequired, sharing

if TYPE_CHECKING:
    from collections.abc import Iterator

ODD = 4000


@pytest.fixture
def other(npu: ovadapter.NpuContext) -> Iterator[l0py.Context]:
    """A second context of the NPU's driver."""
    with l0py.Context(npu.device) as one:
        yield one


@pytest.mark.parametrize("release", ["22.43", "26.13", "26.14"])
def test_with_a_gpu_beside(release: str, npu: ovadapter.NpuContext) -> None:
    """A process has the drivers that it starts with: these tests have one of their own for each release imitated."""
    environment = {**os.environ, "L0PY_SOFTDRIVER": "npu,gpu", "L0PY_SOFTGPU_RELEASE": release}
    environment.pop("ZE_ENABLE_ALT_DRIVERS", None)
    cases = Path(__file__).with_name("two_drivers.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(cases)]
    finished = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=240)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "skipped" not in finished.stdout or not npu.features.touching_pages


def reasons(shared: ovadapter.Shared) -> dict[str, str]:
    return dict(shared.tried)


def test_the_same_context(context: l0py.Context) -> None:
    with nothing_leaks():
        memory = context.alloc_host(ODD)
        with ovadapter.share(memory, to=context) as shared:
            assert shared.way == "same context"
            assert reasons(shared) == {"peer access": "it is memory of no other device"}
            assert shared.memory.address == memory.address
            memory.close()  # its bytes stay while they are shared
            with pytest.raises(l0py.Closed):
                ovadapter.share(memory, to=context)
            shared.memory.numpy()[:] = 3
        assert shared.closed
        shared.close()
        del memory, shared


def test_a_device_stands_for_the_context_that_has_it(context: l0py.Context) -> None:
    with context.alloc_device(ODD) as memory, ovadapter.share(memory, to=context.device) as shared:
        assert shared.way == "same context"
        assert shared.memory.context.handle == context.handle
        shared.memory.fill(5)
        seen = bytearray(ODD)
        memory.copy_to(seen)
        assert seen == b"\5" * ODD


def test_another_context_of_the_driver_by_fd(context: l0py.Context, other: l0py.Context) -> None:
    with nothing_leaks():
        memory = context.alloc_host(ODD, exportable=True)
        with ovadapter.share(memory, to=other) as shared:
            assert shared.way == "dma_buf"
            assert reasons(shared)["same context"] == "the memory belongs to another context of the driver"
            memory.numpy()[:] = 1
            assert (shared.memory.numpy() == 1).all()
            shared.memory.numpy()[:] = 2
            assert (memory.numpy() == 2).all()
            memory.close()  # what came by a handle outlives it
            assert (shared.memory.numpy() == 2).all()
            with ovadapter.share(shared.memory, to=context) as back:
                assert back.way == "dma_buf"
        del memory, shared, back


def test_another_context_of_the_driver_by_pages(context: l0py.Context, other: l0py.Context) -> None:
    with nothing_leaks():
        memory = context.alloc_host(ODD)
        with ovadapter.share(memory, to=other) as shared:
            assert shared.way == "host pages"
            assert (shared.memory.address, shared.memory.size) == (memory.address, ODD)
            memory.close()  # freed when nobody shares it any more
            shared.memory.numpy()[:] = 2
        del memory, shared


def test_a_part_of_what_openvino_has_is_that_part(npu: ovadapter.NpuContext, context: l0py.Context) -> None:
    if not npu.features.cpu_va:
        pytest.skip("this OpenVINO imports memory by fd alone")
    with nothing_leaks():
        with context.alloc_host(3 * 4096) as whole, ovadapter.share(whole, to=npu) as shared:
            for owner, way in ((whole, "host pages"), (shared.memory, "same context")):
                start = owner.address + 4096
                part = l0py.Memory.from_handle(start, 4096, context=owner.context, owner=owner)
                with ovadapter.share(part, to=npu) as again:
                    assert (again.way, again.memory.address) == (way, start)
                    whole.view()[4096] = 5
                    assert again.memory.view()[0] == 5
                    again.memory.view()[0] = 6
                    assert list(whole.view()[4095:4098]) == [0, 6, 0]
                    whole.view()[4096] = 0
                part.close()
        del whole, shared, owner, part, again


def test_the_blocks_own_error_is_not_hidden(context: l0py.Context) -> None:
    """As with memory: an array that its traceback still refers to is no second error."""
    with context.alloc_host(ODD) as memory:
        shared = ovadapter.share(memory, to=context)
        array = shared.memory.numpy()
        with pytest.raises(KeyError), shared:
            raise KeyError
        assert not shared.closed
        del array
        shared.close()


@pytest.mark.parametrize(("exportable", "way"), [(True, "dma_buf"), (False, "host pages")])
def test_openvino_infers_on_it(
    exportable: bool, way: str, npu: ovadapter.NpuContext, context: l0py.Context, compiled: Any
) -> None:
    if not exportable and not npu.features.cpu_va:
        pytest.skip("this OpenVINO imports memory by fd alone")
    request = compiled.create_infer_request()
    request.infer()
    with nothing_leaks():
        memory = context.alloc_host(ODD, exportable=exportable)
        with ovadapter.share(memory, to=npu) as shared:
            assert shared.way == way
            again = ovadapter.share(memory, to=npu)  # one import serves both
            assert again.memory.address == shared.memory.address
            again.close()
            for source in (shared, shared.memory, shared.tensor([1, 1000], "f32")):
                memory.numpy("f4")[:] = 4
                with npu.bind(request, {"xt": source}) as binding:
                    binding.infer()
                    assert shared.memory.address in last_pointers()
                    assert binding.verdict("xt").copied is False
                    assert binding.verdict("xt").evidence == "driver record"
                    memory.numpy("f4")[:] = 8  # after the hand-over
                    binding.infer()
                    assert (request.get_tensor("yt").data == 9).all()
        memory.close()
        del memory, shared, again, source, binding


def test_a_tensor_outlives_the_sharing(npu: ovadapter.NpuContext, context: l0py.Context) -> None:
    memory = context.alloc_host(8192, exportable=True)
    shared = ovadapter.share(memory, to=npu)
    tensor = shared.tensor([10], "f32", offset=12)
    shared.close()
    memory.close()
    tensor.numpy()[:] = 1
    tensor.close()
    with pytest.raises(l0py.Closed):
        shared.tensor([10], "f32")
    with pytest.raises(l0py.Closed):
        npu.remote_tensor(shared, [10], "f32")


def test_it_cannot_be_closed_while_arrays_of_it_live(npu: ovadapter.NpuContext, context: l0py.Context) -> None:
    with context.alloc_host(ODD, exportable=True) as memory:
        for to in (npu, context):
            shared = ovadapter.share(memory, to=to)
            array = shared.memory.numpy()
            with pytest.raises(BufferError):
                shared.close()
            del array
            shared.close()


def test_one_that_is_dropped_lets_go(npu: ovadapter.NpuContext, context: l0py.Context, other: l0py.Context) -> None:
    with context.alloc_host(ODD, exportable=True) as memory, context.alloc_host(ODD) as pages, nothing_leaks():
        for to in (npu, context, other, npu.device):
            ovadapter.share(memory, to=to)
            ovadapter.share(pages, to=to)
        gc.collect()


def test_openvinos_own_memory(npu: ovadapter.NpuContext) -> None:
    with npu.context.alloc_host(ODD) as memory, pytest.raises(CopyRequired, match="copied when others did"):
        ovadapter.share(memory, to=npu)
    with npu.context.alloc_host(ODD, exportable=True) as memory, ovadapter.share(memory, to=npu) as shared:
        assert shared.way == "dma_buf"
        assert "used in place when OpenVINO allocated it" in reasons(shared)["same context"]
        with ovadapter.share(shared.memory, to=npu) as again:  # what OpenVINO itself imported
            assert again.way == "same context"


def test_device_memory_without_a_handle_has_no_way(
    npu: ovadapter.NpuContext, context: l0py.Context, other: l0py.Context
) -> None:
    with context.alloc_device(ODD) as memory:
        for to in (npu, other):
            with nothing_leaks(), pytest.raises(CopyRequired) as caught:
                ovadapter.share(memory, to=to)
            assert caught.value.way_out == "Allocate it with exportable='dma_buf'"
            for reason in (
                "same context: the memory belongs to another context",
                "dma_buf: it was not made exportable",
                "opaque_fd: it was not made exportable",
                "host pages: the host may not touch device memory",
            ):
                assert reason in caught.value.rule


def test_refused_imports_are_reasons(npu: ovadapter.NpuContext, context: l0py.Context, other: l0py.Context) -> None:
    with context.alloc_host(ODD, exportable=True) as memory:
        for to in (npu, other):
            softdriver.inject("zeMemAllocHost", 0, "ZE_RESULT_ERROR_UNSUPPORTED_FEATURE", 0)
            with nothing_leaks(), pytest.raises(CopyRequired) as caught:
                ovadapter.share(memory, to=to)
            assert caught.value.rule.count("UNSUPPORTED_FEATURE") == 2  # by fd, and by its pages
            softdriver.clear_faults()
            # The first way is refused, the next one is taken.
            softdriver.inject("zeMemAllocHost", 0, "ZE_RESULT_ERROR_UNSUPPORTED_FEATURE", 1)
            with ovadapter.share(memory, to=to) as shared:
                assert shared.way == "host pages"
                assert "UNSUPPORTED_FEATURE" in reasons(shared)["dma_buf"]
            softdriver.clear_faults()
        softdriver.inject("zeMemAllocHost", 0, "ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY", 1)
        with nothing_leaks(), pytest.raises(l0py.OutOfMemory):
            ovadapter.share(memory, to=other)


def test_peer_access(context: l0py.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no software driver of two devices: the second one here is but a number."""
    peer = l0py.Device.from_handle(0x1000, context.driver)
    peer._properties = context.device.properties._replace(name="peer")
    with context.alloc_device(ODD) as whole:
        memory = l0py.Memory.from_handle(whole.address, ODD, context=context, kind="device", device=peer)
        with pytest.raises(CopyRequired, match=r"peer access: .*zeDeviceCanAccessPeer.*same context: it is memory of"):
            ovadapter.share(memory, to=context)
        answers: dict[bool, list[Any]] = {True: [], False: []}
        for answer, asked in answers.items():
            monkeypatch.setattr(l0py.Device, "can_access_peer", lambda *ask, a=answer, to=asked: to.append(ask) or a)
            if answer:
                for to in (context, context.device):
                    shared = ovadapter.share(memory, to=to)
                    assert (shared.way, shared.tried) == ("peer access", [])
                    assert shared.memory.device is peer
                    shared.close()
            else:
                with pytest.raises(CopyRequired, match=r"peer access: .* has no access to the memory of peer"):
                    ovadapter.share(memory, to=context)
            assert set(asked) == {(context.device, peer)}


def test_what_cannot_be_shared(context: l0py.Context, npu: ovadapter.NpuContext) -> None:
    with context.alloc_host(ODD, exportable=True) as memory, nothing_leaks():
        for source in (None, 5, np.zeros(8), memory.address):
            with pytest.raises(TypeError, match=r"what is shared is a l0py\.Memory"):
                ovadapter.share(source, to=context)
        for to in (None, "npu", context.driver, npu.core):
            with pytest.raises(TypeError, match=r"with an NpuContext, a l0py\.Context or a l0py\.Device"):
                ovadapter.share(memory, to=to)
        with ovadapter.share(memory, to=context) as shared:
            with pytest.raises(TypeError, match="not shared with an NpuContext"):
                shared.tensor([1], "u8")
            with pytest.raises(TypeError, match="cannot be copied or pickled"):
                pickle.dumps(shared)
            assert "by same context" in repr(shared)
        closed = l0py.Context(context.device)
        closed.close()
        with pytest.raises(l0py.Closed):
            ovadapter.share(memory, to=closed)
        del source, to, shared, closed


class Nt:
    """What an NT handle is to those who import it: on Linux the number of an fd stands for one."""

    def __init__(self, fd: Any) -> None:
        self._fd = fd

    @property
    def handle(self) -> int:
        return int(self._fd.fileno())

    def __enter__(self) -> Nt:
        return self

    def __exit__(self, *_error: object) -> None:
        self._fd.close()


def test_nt_handles(
    monkeypatch: pytest.MonkeyPatch, npu: ovadapter.NpuContext, context: l0py.Context, other: l0py.Context
) -> None:
    """The way of Windows, as far as Linux knows it: the handle goes to the driver, or to OpenVINO, and is closed."""
    imported: list[Any] = []

    def export(memory: l0py.Memory, _kind: str | None = None) -> Nt:
        memory.exportable = "dma_buf"
        fd = real(memory)
        memory.exportable = "opaque_win32"
        return Nt(fd)

    def import_win32(to: l0py.Context, handle: Nt, size: int, **options: Any) -> l0py.Memory:
        imported.append((size, options))
        return to.import_dma_buf(handle.handle, size)

    real = l0py.Memory.export
    external = context.device.external_memory._replace(
        imports=frozenset({"dma_buf", "opaque_win32"}), exports=frozenset({"opaque_win32"})
    )
    with context.alloc_host(ODD, exportable=True) as memory, context.alloc_device(ODD) as device:
        memory.exportable = "opaque_win32"
        monkeypatch.setattr(sharing, "_HANDLE_KINDS", ("opaque_win32",))
        monkeypatch.setattr(l0py.Memory, "export", export)
        monkeypatch.setattr(l0py.Context, "import_win32", import_win32)
        monkeypatch.setattr(l0py.Device, "external_memory", external)
        with nothing_leaks():
            for to in (other, npu):
                with ovadapter.share(memory, to=to) as shared:
                    assert shared.way == "opaque_win32"
                    memory.numpy()[:] = 3
                    assert (shared.memory.numpy() == 3).all()
            assert imported == [(ODD, {"type": "opaque_win32", "kind": "host"})]
            with npu.remote_tensor(memory, [1000], "f32") as tensor:
                assert tensor.route == "SHARED_BUF"
            with pytest.raises(CopyRequired, match="Allocate it with exportable='opaque_win32'"):
                ovadapter.share(device, to=npu)
            del shared, tensor


def test_a_file_that_was_truncated_is_told_as_such(
    npu: ovadapter.NpuContext, context: l0py.Context, memfd: int
) -> None:
    with context.import_dma_buf(memfd) as memory:
        os.ftruncate(memfd, 4096)
        with nothing_leaks(), ovadapter.share(memory, to=context) as shared:
            assert shared.way == "same context"  # nothing is imported, so nothing is refused
            del shared
        with nothing_leaks(), pytest.raises(CopyRequired, match="behind it are 4096 of its 8192 bytes"):
            ovadapter.share(memory, to=npu)


def test_read_only_memory_stays_so(
    npu: ovadapter.NpuContext, compiled: Any, context: l0py.Context, other: l0py.Context, memfd: int
) -> None:
    request = compiled.create_infer_request()
    with context.import_dma_buf(memfd, read_only=True) as memory:
        for to in (npu, other, context):
            with ovadapter.share(memory, to=to) as shared:
                assert shared.memory.read_only
                assert not shared.memory.numpy().flags.writeable
        with ovadapter.share(memory, to=npu) as shared:
            with pytest.raises(ovadapter.TensorMismatch, match="read-only"):
                npu.bind(request, None, {"yt": shared})
            with npu.bind(request, {"xt": shared}) as binding:
                os.pwrite(memfd, np.full(1000, 6, np.float32).tobytes(), 0)
                binding.infer()
                assert (request.get_tensor("yt").data == 7).all()
                assert binding.verdict("xt").copied is False


def test_many_threads_share_one_memory(npu: ovadapter.NpuContext, context: l0py.Context) -> None:
    with context.alloc_host(ODD, exportable=True) as memory, nothing_leaks():
        with ovadapter.share(memory, to=npu) as kept:
            addresses: list[int] = []

            def work() -> None:
                for _ in range(10):
                    with ovadapter.share(memory, to=npu) as shared, shared.tensor([10], "f32") as tensor:
                        addresses.append(tensor.address or 0)

            threads = [threading.Thread(target=work) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert addresses == [kept.memory.address] * 80
        del kept


FORK = """
import gc, os, sys
import l0py, ovadapter
npu = ovadapter.NpuContext()
context = l0py.Context(npu.device)
memory = context.alloc_host(4000, exportable=True)
shared = [ovadapter.share(memory, to=to) for to in (npu, context)]
child = os.fork()
if child == 0:
    status = 1
    try:
        for one in shared:
            assert one.closed
            one.close()
        shared.clear()
        gc.collect()
        status = 0
    finally:
        os._exit(status)
assert os.waitpid(child, 0)[1] == 0
memory.numpy()[:] = 7
for one in shared:
    assert (one.memory.numpy() == 7).all()
    one.close()
memory.close()
print("fine")
"""


def test_a_child_of_a_fork_lets_the_parent_keep_it(python: Any) -> None:
    finished = python(FORK)
    assert finished.stdout == "fine\n", finished.stderr
