"""When the plugin copies and when it does not: a case for every row of what is known about it.

Each case runs with the memory as an input and as an output, and is judged twice: by the addresses that the software
driver wrote down while the graph ran, and by `was_copied`, which must agree or say that it does not know.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import openvino as ov
import pytest
from npu_helpers import aligned_array, last_pointers, nothing_leaks
from openvino import opset13 as ops

import l0py
import ovadapter
from l0py import dmabuf, softdriver
from ovadapter import CopyRequired, ImportRefused, discovery
from ovadapter.properties import cpu_va as cpu_va_properties
from ovadapter.tensor import make_import

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ODD, PAGED = 4000, 8192
"""Bytes of the tensors: the f32 models of conftest with 1000 and 2048 elements."""


@dataclass
class Placed:
    """A tensor to be set, where its data lies, and the host's view of the same memory."""

    tensor: Any
    address: int
    host: Any
    keep: Any = None


@dataclass(frozen=True)
class Case:
    """`copied` is what the plugin does; `told` is whether was_copied can know it without a binding."""

    name: str
    size: int
    copied: bool
    make: Callable[[ovadapter.NpuContext, l0py.Context, int], Placed]
    told: bool = True


def plain(array: Any) -> Any:
    return ov.Tensor(array.view(np.float32).reshape(1, -1), shared_memory=True)


def at(address: int, size: int) -> Any:
    """The process's own view of an address, as bytes."""
    return np.frombuffer(l0py.lib.ffi.buffer(l0py.lib.ffi.cast("char*", address), size), np.uint8)


def handle(tensor: Any) -> int:
    return int(tensor.get_params()["MEM_HANDLE"].astype(str), 16)


def remote(npu: ovadapter.NpuContext, size: int, properties: dict[str, str], type_: Any = ov.Type.f32) -> Any:
    return npu.remote_context.create_tensor(type_, ov.Shape([1, size // type_.size]), properties)


def host_tensor(npu: ovadapter.NpuContext, _context: l0py.Context, size: int) -> Placed:
    tensor = npu.remote_context.create_host_tensor(ov.Type.f32, ov.Shape([1, size // 4]))
    return Placed(tensor, tensor.data.ctypes.data, tensor.data)


def internal_remote(npu: ovadapter.NpuContext, _context: l0py.Context, size: int) -> Placed:
    tensor = remote(npu, size, {})
    return Placed(tensor, handle(tensor), at(handle(tensor), size))


def inside_internal_remote(npu: ovadapter.NpuContext, _context: l0py.Context, size: int) -> Placed:
    whole = remote(npu, size + 8192, {})
    address = handle(whole) + 100
    return Placed(plain(at(address, size)), address, at(address, size), whole)


def page_aligned(_npu: ovadapter.NpuContext, _context: l0py.Context, size: int) -> Placed:
    array = aligned_array(size)
    return Placed(plain(array), array.ctypes.data, array)


def skewed(_npu: ovadapter.NpuContext, _context: l0py.Context, size: int) -> Placed:
    array = aligned_array(size, skew=64)
    return Placed(plain(array), array.ctypes.data, array)


def numpy_array(_npu: ovadapter.NpuContext, _context: l0py.Context, size: int) -> Placed:
    array = np.zeros(size, np.uint8)
    return Placed(plain(array), array.ctypes.data, array)


def third_party_in_plugin_context(npu: ovadapter.NpuContext, _context: l0py.Context, size: int) -> Placed:
    memory = npu.context.alloc_host(size)
    array = memory.numpy("u1")
    return Placed(plain(array), memory.address, array, memory)


def shared_buf(npu: ovadapter.NpuContext, context: l0py.Context, size: int) -> Placed:
    memory = context.alloc_host(size, exportable=True)
    with memory.export() as fd:
        tensor = remote(npu, size, {"MEM_TYPE": "SHARED_BUF", "MEM_HANDLE": hex(fd.fileno())})
    return Placed(tensor, handle(tensor), memory.numpy("u1"), memory)


def inside_shared_buf_keeper(npu: ovadapter.NpuContext, context: l0py.Context, size: int) -> Placed:
    memory = context.alloc_host(size + 8192, exportable=True)
    with memory.export() as fd:
        keeper = remote(npu, memory.size, {"MEM_TYPE": "SHARED_BUF", "MEM_HANDLE": hex(fd.fileno())}, ov.Type.u8)
    address = handle(keeper) + 4
    return Placed(plain(at(address, size)), address, memory.numpy("u1")[4 : 4 + size], (keeper, memory))


def cpu_va(npu: ovadapter.NpuContext, context: l0py.Context, size: int) -> Placed:
    memory = context.alloc_host(size)
    tensor = remote(npu, size, {"MEM_TYPE": "CPU_VA", "MEM_HANDLE": hex(memory.address)})
    return Placed(tensor, memory.address, memory.numpy("u1"), memory)


def inside_cpu_va_keeper(npu: ovadapter.NpuContext, context: l0py.Context, size: int) -> Placed:
    memory = context.alloc_host(16384)
    keeper = remote(npu, 16384, {"MEM_TYPE": "CPU_VA", "MEM_HANDLE": hex(memory.address)}, ov.Type.u8)
    array = memory.numpy("u1")[12 : 12 + size]
    return Placed(plain(array), memory.address + 12, array, (keeper, memory))


def made(npu: ovadapter.NpuContext, source: Any, size: int, host: Any, **options: Any) -> Placed:
    """By the adapter."""
    tensor = npu.remote_tensor(source, [1, size // 4], "f32", **options)
    return Placed(tensor.remote or tensor.plain, tensor.address, host, tensor)


def adapter_shared_buf(npu: ovadapter.NpuContext, context: l0py.Context, size: int) -> Placed:
    memory = context.alloc_host(size, exportable=True)
    return made(npu, memory, size, memory.numpy("u1"), route="SHARED_BUF")


def adapter_cpu_va(npu: ovadapter.NpuContext, context: l0py.Context, size: int) -> Placed:
    memory = context.alloc_host(size)
    return made(npu, memory, size, memory.numpy("u1"), route="CPU_VA")


def adapter_keeper(npu: ovadapter.NpuContext, context: l0py.Context, size: int) -> Placed:
    memory = context.alloc_host(size + 500)
    return made(npu, memory, size, memory.numpy("u1")[20 : 20 + size], offset=20)


CASES = [
    Case("allocated by the plugin: create_host_tensor", ODD, False, host_tensor),
    Case("allocated by the plugin: remote tensor without properties", ODD, False, internal_remote, told=False),
    Case("allocated by the plugin: interior address of a remote tensor", ODD, False, inside_internal_remote),
    Case("unknown to the context, whole pages", PAGED, False, page_aligned),
    Case("unknown to the context, size not whole pages", ODD, True, page_aligned),
    Case("unknown to the context, address not on a page", PAGED, True, skewed),
    Case("plain numpy array", ODD, True, numpy_array),
    Case("allocated by somebody else in the plugin's context", ODD, True, third_party_in_plugin_context),
    Case("allocated by somebody else in the plugin's context, pages", PAGED, True, third_party_in_plugin_context),
    Case("remote tensor SHARED_BUF", ODD, False, shared_buf, told=False),
    Case("remote tensor SHARED_BUF, pages", PAGED, False, shared_buf, told=False),
    Case("plain tensor inside a SHARED_BUF keeper", ODD, False, inside_shared_buf_keeper),
    Case("remote tensor CPU_VA", PAGED, False, cpu_va, told=False),
    Case("plain tensor inside a CPU_VA keeper", ODD, False, inside_cpu_va_keeper),
    Case("the adapter's SHARED_BUF", ODD, False, adapter_shared_buf, told=False),
    Case("the adapter's CPU_VA", PAGED, False, adapter_cpu_va, told=False),
    Case("the adapter's keeper", ODD, False, adapter_keeper),
]


@pytest.mark.parametrize("side", ["input", "output"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_row(
    case: Case, side: str, npu: ovadapter.NpuContext, context: l0py.Context, compiled: Any, paged: Any
) -> None:
    request = (compiled if case.size == ODD else paged).create_infer_request()
    placed = case.make(npu, context, case.size)
    name, other = ("xt", "yt") if side == "input" else ("yt", "xt")
    request.set_tensor(name, placed.tensor)
    host = placed.host.view(np.float32).reshape(-1)
    values = np.arange(case.size // 4, dtype=np.float32)
    if side == "input":
        host[:] = values
    else:
        request.get_tensor("xt").data[:] = values
    request.start_async()
    request.wait()
    result = request.get_tensor("yt").data if side == "input" else host
    assert (result == values + 1).all()

    assert (placed.address in last_pointers()) is not case.copied
    verdict = ovadapter.was_copied(request, name)
    assert verdict.copied is (case.copied if case.told else None)
    assert verdict.evidence == ("driver record" if case.told else "none")
    assert not ovadapter.was_copied(request, other), "the plugin's own buffer is never copied"


@pytest.mark.parametrize("side", ["input", "output"])
def test_page_aligned_plain_tensor_is_imported_anew_at_every_inference(side: str, paged: Any) -> None:
    if discovery.openvino_version() < (2026, 1):
        pytest.skip("2026.0 keeps the import")
    request = paged.create_infer_request()
    array = aligned_array(PAGED)
    request.set_tensor("xt" if side == "input" else "yt", plain(array))
    request.infer()
    softdriver.reset_record()
    softdriver.record_calls()
    try:
        for _ in range(3):
            request.infer()
            assert array.ctypes.data in last_pointers()
        calls = softdriver.record()["calls"]
    finally:
        softdriver.record_calls(False)
    assert calls["zeMemAllocHost"]["count"] >= 3
    assert calls["zeMemFree"]["count"] >= 3


def test_page_aligned_plain_tensor_is_copied_when_the_driver_refuses_the_import(paged: Any) -> None:
    request = paged.create_infer_request()
    request.infer()  # so that no other allocation is to be made
    array = aligned_array(PAGED)
    softdriver.inject("zeMemAllocHost", 0, "ZE_RESULT_ERROR_UNSUPPORTED_FEATURE", 1)
    try:
        request.set_tensor("xt", plain(array))
        request.infer()
    finally:
        softdriver.clear_faults()
    assert array.ctypes.data not in last_pointers()
    assert ovadapter.was_copied(request, "xt")


def test_the_plugin_throws_for_cpu_va_in_its_own_context(npu: ovadapter.NpuContext) -> None:
    with npu.context.alloc_host(PAGED) as memory:
        with pytest.raises(RuntimeError):
            remote(npu, PAGED, {"MEM_TYPE": "CPU_VA", "MEM_HANDLE": hex(memory.address)})
        with pytest.raises(CopyRequired, match="own context"):
            npu.remote_tensor(memory, [1, 2048], "f32")
        array = memory.numpy("f4", (1, 2048))
        with pytest.raises(CopyRequired, match="own context"):
            npu.remote_tensor(array, [1, 2048], "f32")
        del array
    with npu.context.alloc_host(PAGED, exportable=True) as memory:
        assert npu.remote_tensor(memory, [1, 2048], "f32").route == "SHARED_BUF"


def test_cpu_va_raises_where_it_cannot_be_used_in_place(npu: ovadapter.NpuContext, context: l0py.Context) -> None:
    with context.alloc_host(PAGED) as memory, nothing_leaks():
        for address, size in ((memory.address + 64, 4096), (memory.address, ODD)):
            with pytest.raises(RuntimeError):
                remote(npu, size, {"MEM_TYPE": "CPU_VA", "MEM_HANDLE": hex(address)})


def test_shared_buf_raises_where_it_cannot_be_used_in_place(npu: ovadapter.NpuContext, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(ODD))
    with dmabuf.Fd(os.open(path, os.O_RDWR)) as fd, nothing_leaks(), pytest.raises(RuntimeError):
        remote(npu, ODD, {"MEM_TYPE": "SHARED_BUF", "MEM_HANDLE": hex(fd.fileno())})


def test_a_port_that_a_shape_tensor_bounds_is_copied(npu: ovadapter.NpuContext, context: l0py.Context) -> None:
    """The plugin knows a shape tensor by its name; from 2026.2 on it copies the port that this bounds, always."""
    data, bound = ops.parameter([1, 1000], ov.Type.f32), ops.parameter([2], ov.Type.i32)
    data.set_friendly_name("data")
    bound.set_friendly_name("vpux_ie_shape_data")
    results = [ops.add(one, one) for one in (data, bound)]
    for one, name in zip([data, bound, *results], ("data", "bound", "out", "bound out"), strict=True):
        one.output(0).get_tensor().set_names({name})
    compiled = npu.core.compile_model(ov.Model(results, [data, bound], "bounded"), "NPU")
    placed = shared_buf(npu, context, ODD)
    placed.host.view(np.float32)[:] = 2
    for tensor, address in ((placed.tensor, placed.address), (host_tensor(npu, context, ODD).tensor, None)):
        request = compiled.create_infer_request()
        request.set_tensor("data", tensor)
        request.infer()
        in_place = (address or tensor.data.ctypes.data) in last_pointers()
        assert in_place == (discovery.openvino_version() < (2026, 2))
    with npu.remote_tensor(placed.keep, [1, 1000], "f32") as tensor:
        request = compiled.create_infer_request()
        with npu.bind(request, {"data": tensor}) as binding:
            binding.infer()
            assert (request.get_tensor("out").data == 4).all()
            assert binding.verdict("data").copied == (discovery.openvino_version() >= (2026, 2))
            assert binding.verdict("data").evidence == "driver record"


def test_cpu_va_inside_a_keeper_lies_at_the_wrong_address(
    npu: ovadapter.NpuContext, context: l0py.Context, paged: Any
) -> None:
    """The trap that the adapter keeps people out of: first that it is there, then that it cannot be reached."""
    with context.alloc_host(16384) as memory:
        keeper = remote(npu, 16384, {"MEM_TYPE": "CPU_VA", "MEM_HANDLE": hex(memory.address)}, ov.Type.u8)
        wrong = remote(npu, 4096, {"MEM_TYPE": "CPU_VA", "MEM_HANDLE": hex(memory.address + 8192)})
        assert handle(wrong) == memory.address
        request = paged.create_infer_request()
        request.set_tensor("xt", remote(npu, PAGED, {"MEM_TYPE": "CPU_VA", "MEM_HANDLE": hex(memory.address + 8192)}))
        request.infer()
        assert last_pointers()[0] == memory.address
        del wrong, request
        array = memory.numpy("u1")[8192:12288]
        with pytest.raises(CopyRequired, match="use the tensor that it gave you"):  # the adapter did not import it
            npu.remote_tensor(array, [1024], "f32", route="CPU_VA")
        del array, keeper

        with npu.remote_tensor(memory, [16384], "u8", route="keeper") as whole:
            array = memory.numpy("u1")[8192:12288]
            with pytest.raises(ImportRefused, match="already imported"):
                npu.remote_tensor(array, [1024], "f32", route="CPU_VA")
            inside = npu.remote_tensor(array, [1024], "f32")
            assert (inside.route, inside.address) == ("keeper", whole.address + 8192)
            del array, inside


@pytest.mark.parametrize("size", [ODD, PAGED])
@pytest.mark.parametrize("exportable", [True, False], ids=["exportable", "not exportable"])
def test_bound_memory_is_used_in_place(
    exportable: bool, size: int, npu: ovadapter.NpuContext, context: l0py.Context, compiled: Any, paged: Any
) -> None:
    if not exportable and not npu.features.touching_pages:
        pytest.skip("this OpenVINO refuses pages that end where other imported pages begin")
    request = (compiled if size == ODD else paged).create_infer_request()
    with context.alloc_host(size, exportable=exportable) as x, context.alloc_host(size, exportable=exportable) as y:
        x.numpy("f4")[:] = 5
        with npu.bind(request, {"xt": x}, {"yt": y}) as binding:
            for _ in range(2):
                binding.infer()
                assert [binding.tensors[name].address for name in ("xt", "yt")] == last_pointers()
                for name in ("xt", "yt"):
                    assert not binding.verdict(name)
                    assert binding.verdict(name).evidence == "driver record"
        assert (y.numpy("f4") == 6).all()


def test_what_openvino_does_with_handles(npu: ovadapter.NpuContext, context: l0py.Context, compiled: Any) -> None:
    """The facts that the adapter is written against: when one changes, this says so."""
    with context.alloc_host(ODD, exportable=True) as memory, memory.export() as fd:
        with pytest.raises(RuntimeError):  # an int is no void*
            remote(npu, ODD, {"MEM_TYPE": "SHARED_BUF", "MEM_HANDLE": fd.fileno()})
        with pytest.raises(RuntimeError, match="null"):  # fd 0 is taken for a missing handle
            remote(npu, ODD, {"MEM_TYPE": "SHARED_BUF", "MEM_HANDLE": "0x0"})
        tensor = remote(npu, ODD, {"MEM_TYPE": "SHARED_BUF", "MEM_HANDLE": hex(fd.fileno())})
        del tensor
        assert fd.size >= ODD  # still open: OpenVINO closes no fd

        request = compiled.create_infer_request()
        tensor = remote(npu, ODD, {})
        with pytest.raises(TypeError):
            request.set_output_tensor(tensor)
        request.set_tensor("yt", tensor)
        before = softdriver.record()["executed"]
        with pytest.raises(RuntimeError, match="Not Implemented"):
            request.infer()
        assert softdriver.record()["executed"] == before + 1

    other = ov.Core()
    assert ovadapter.NpuContext(other).l0_context == npu.l0_context
    ignored = other.create_context("NPU", {"L0_CONTEXT": hex(0x1234)})
    assert int(ignored.get_params()["L0_CONTEXT"].astype(str), 16) == npu.l0_context


def test_a_tensor_at_another_address_is_refused(npu: ovadapter.NpuContext) -> None:
    """The last line of defence, against a plugin that answers with another address than was asked for."""
    elsewhere = remote(npu, PAGED, {})

    class Wrong:
        def create_tensor(self, *_arguments: Any) -> Any:
            return elsewhere

    with pytest.raises(ImportRefused, match="not at 0x1000"):
        make_import(Wrong(), (8192,), ov.Type.u8, cpu_va_properties(0x1000, "BINDED"), hold=None, wanted_address=0x1000)


def test_no_memory_is_left_behind(npu: ovadapter.NpuContext, compiled: Any) -> None:
    def run() -> None:
        with l0py.Context(npu.device) as context:
            for make in (adapter_shared_buf, adapter_keeper, shared_buf, inside_shared_buf_keeper):
                request = compiled.create_infer_request()
                placed = make(npu, context, ODD)
                request.set_tensor("xt", placed.tensor)
                request.infer()

    run()
    with nothing_leaks():
        run()
