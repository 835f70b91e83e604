"""The same memory for OpenVINO's CPU plugin, observed, and what can be run of the GPU plugin's without a GPU."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
from npu_helpers import add_model, aligned_array, last_pointers, nothing_leaks

import l0py
import ovadapter
from l0py import dmabuf
from ovadapter import CopyRequired, GpuMissing, ImportRefused, TensorMismatch, discovery, properties

ODD = 4000


@pytest.fixture(scope="session")
def cpu(npu: ovadapter.NpuContext) -> ovadapter.CpuContext:
    return ovadapter.CpuContext(npu.core)


@pytest.fixture(scope="session")
def on_cpu(cpu: ovadapter.CpuContext) -> Any:
    """f32 1x1000 in and out."""
    return cpu.core.compile_model(add_model([1, 1000]), "CPU")


@pytest.fixture
def request_(on_cpu: Any) -> Any:
    request = on_cpu.create_infer_request()
    request.infer()
    return request


def test_the_cpu_works_in_l0py_memory(cpu: ovadapter.CpuContext, request_: Any, npu: ovadapter.NpuContext) -> None:
    with nothing_leaks(), l0py.Context(npu.device) as context:
        x, y = context.alloc_host(ODD), context.alloc_host(ODD, exportable=True)
        with cpu.bind(request_, {"xt": x}, {"yt": y}) as binding:
            assert {tensor.route for tensor in binding.tensors.values()} == {"view"}
            for value in (1, 5):  # the second is written after the hand-over
                x.numpy("f4")[:] = value
                binding.infer()
                assert (y.numpy("f4") == value + 1).all()
            for name, memory in (("xt", x), ("yt", y)):
                assert request_.get_tensor(name).data.ctypes.data == memory.address
                assert binding.verdict(name).copied is None  # no record tells
                with pytest.raises(BufferError):
                    memory.close()
        y.numpy()[:] = 0
        request_.infer()  # on its own memory again
        assert not y.numpy().any()
        del x, y, binding, memory


#: Reads the first element of an input whose other pages nobody may touch: who copies it is killed.
GUARDED = """
import ctypes, sys
import numpy as np, openvino as ov
from openvino import opset13 as ops
import l0py, ovadapter
context = l0py.Context(l0py.find_device("npu"))
count = 1 << 20
memory = context.alloc_host(4 * count + 4096)
offset = int(sys.argv[2])
memory.numpy("f4")[: offset // 4 + 1] = 7
x = ops.parameter([count], ov.Type.f32)
x.output(0).get_tensor().set_names({"x"})
first = ops.slice(x, np.array([0]), np.array([1]), np.array([1]))
result = first if sys.argv[1] == "first" else ops.reduce_sum(x, np.array([0]))
cpu = ovadapter.CpuContext()
request = cpu.core.compile_model(ov.Model([result], [x], "guarded"), "CPU").create_infer_request()
tensor = cpu.remote_tensor(memory, [count], "f32", offset=offset)
with cpu.bind(request, {"x": tensor}, restore=False) as binding:
    library = ctypes.CDLL(None)
    assert library.mprotect(ctypes.c_void_p(memory.address + 4096), ctypes.c_size_t(4 * count), 0) == 0
    binding.infer()
    print(request.get_output_tensor(0).data)
    assert library.mprotect(ctypes.c_void_p(memory.address + 4096), ctypes.c_size_t(4 * count), 3) == 0
"""


@pytest.mark.parametrize("offset", [0, 4], ids=["page", "inside a page"])
def test_the_cpu_copies_nothing(offset: int, python: Any) -> None:
    finished = python(GUARDED, "first", str(offset))
    assert finished.stdout == "[7.]\n", finished.stderr
    touched = python(GUARDED, "all", str(offset))  # the guard guards
    assert touched.returncode == -signal.SIGSEGV


def test_one_memory_for_the_cpu_and_the_npu_at_once(
    cpu: ovadapter.CpuContext, request_: Any, npu: ovadapter.NpuContext, compiled: Any, context: l0py.Context
) -> None:
    x, y, z = (context.alloc_host(ODD, exportable=True) for _ in range(3))
    request = compiled.create_infer_request()
    with npu.bind(request, {"xt": x}, {"yt": y}) as first, cpu.bind(request_, {"xt": x}, {"yt": z}) as second:
        for seed in range(3):
            x.numpy("f4")[:] = np.random.default_rng(seed).random(1000)
            first.start_async()
            second.start_async()
            first.wait()
            second.wait()
            assert y.numpy().tobytes() == z.numpy().tobytes()
            assert (y.numpy("f4") == x.numpy("f4") + 1).all()
            assert first.tensors["xt"].address in last_pointers()
            assert first.verdict("xt").copied is False
            assert second.tensors["xt"].address == x.address


def test_what_else_the_cpu_takes(cpu: ovadapter.CpuContext, context: l0py.Context, memfd: int) -> None:
    with nothing_leaks():
        with cpu.remote_tensor(memfd, [10], "f32", offset=4) as tensor:  # mapped
            tensor.numpy()[:] = 2
            assert np.frombuffer(os.pread(memfd, 48, 0), np.float32).tolist() == [0] + [2] * 10 + [0]
        array = aligned_array(100, skew=3)
        with cpu.remote_tensor(array, [25], "f32") as tensor:
            assert tensor.address == array.ctypes.data
        array.flags.writeable = False
        with cpu.remote_tensor(array, [25], "f32", tensor_type="INPUT") as tensor:
            assert not tensor.numpy().flags.writeable
        del tensor
    with context.alloc_device(ODD, exportable=True) as device, cpu.remote_tensor(device, [ODD], "u8") as tensor:
        device.fill(9)
        assert (tensor.numpy() == 9).all()


def test_what_the_cpu_cannot_take(
    cpu: ovadapter.CpuContext, request_: Any, npu: ovadapter.NpuContext, compiled: Any, context: l0py.Context
) -> None:
    with context.alloc_device(ODD) as device, nothing_leaks(), pytest.raises(CopyRequired, match="host may touch"):
        cpu.remote_tensor(device, [1000], "f32")
    with context.alloc_host(ODD) as memory:
        for keywords, says in (
            ({"offset": 4}, "too small"),
            ({"offset": -4}, "negative"),
            ({"route": "keeper"}, "none of view"),
            ({"tensor_type": "X"}, "none of"),
        ):
            with nothing_leaks(), pytest.raises(TensorMismatch, match=says):
                cpu.remote_tensor(memory, [1000], "f32", **keywords)
        with pytest.raises(TypeError, match="memory is"):
            cpu.remote_tensor("memory", [1], "u8")
        with pytest.raises(TensorMismatch, match=r"runs on CPU, not on the NPU alone"):
            npu.bind(request_, {"xt": memory})
        with pytest.raises(TensorMismatch, match=r"runs on NPU.*, not on the CPU alone"):
            cpu.bind(compiled.create_infer_request(), {"xt": memory})
        with pytest.raises(TensorMismatch, match="overlaps"):
            cpu.bind(request_, {"xt": memory}, {"yt": memory})
    with pytest.raises(l0py.Closed):
        cpu.remote_tensor(memory, [1000], "f32")
    with pytest.raises(TypeError, match=r"CpuContext is made of an openvino\.Core"):
        ovadapter.CpuContext(5)  # type: ignore[arg-type]


def test_a_gpu_that_is_not_there(npu: ovadapter.NpuContext) -> None:
    if "GPU" in npu.core.available_devices:
        pytest.skip("there is a GPU, and nobody knows yet what happens")
    for options in ({}, {"device_index": 1}):
        with pytest.raises(GpuMissing, match=r"OpenVINO has no GPU\. It says: .*(OpenCL|GPU)"):
            ovadapter.GpuContext(npu.core, **options)
    assert "Not run on hardware" in str(ovadapter.GpuContext.__doc__)


class Recorder:
    """A GPU's remote context that takes what it is asked for down, and answers with tensors of the NPU."""

    def __init__(self, npu: ovadapter.NpuContext) -> None:
        self.asked: list[dict[str, str]] = []
        self.error: Exception | None = None
        self.closes_fds = False
        self._npu = npu

    def create_tensor(self, type_: Any, shape: Any, request: dict[str, str]) -> Any:
        self.asked.append(request)
        if self.error is not None:
            raise self.error
        if self.closes_fds and "OS_HANDLE" in request:
            os.close(int(request["OS_HANDLE"]))
        return self._npu.remote_context.create_tensor(type_, shape, {})


@pytest.fixture
def gpu(npu: ovadapter.NpuContext) -> Any:
    """A GpuContext that believes in a GPU."""
    made = object.__new__(ovadapter.GpuContext)
    made.core = npu.core
    made.remote_context = Recorder(npu)
    return made


@pytest.mark.parametrize("closes", [False, True], ids=["fds stay open", "the runtime closes fds"])
def test_a_gpu_tensor_by_fd(gpu: Any, closes: bool, context: l0py.Context) -> None:
    gpu.remote_context.closes_fds = closes
    with context.alloc_host(ODD, exportable=True) as memory, nothing_leaks():
        tensor = gpu.remote_tensor(memory, [1000], "f32")
        (request,) = gpu.remote_context.asked
        assert request == {"SHARED_MEM_TYPE": "BUFFER_FROM_HANDLE", "OS_HANDLE": request["OS_HANDLE"]}
        if not closes:
            with memory.export() as fd, dmabuf.Fd.duplicate(int(request["OS_HANDLE"])) as lent:
                assert lent.identity == fd.identity
        assert (tensor.route, tensor.mem_type, tensor.address) == (
            "BUFFER_FROM_HANDLE",
            "BUFFER_FROM_HANDLE",
            memory.address,
        )
        assert tensor.remote is not None
        mine = os.open("/dev/null", os.O_RDONLY)  # perhaps under the number that the runtime closed
        tensor.close()
        os.close(mine)  # and still open
        del tensor


def test_a_gpu_tensor_of_an_fd_alone_has_no_address(gpu: Any, memfd: int) -> None:
    with nothing_leaks(), gpu.remote_tensor(memfd, [100], "u8") as tensor:
        assert tensor.address is None
        assert " at " not in repr(tensor)
        with pytest.raises(l0py.NotSupported, match="map the fd"):
            tensor.numpy()
        other = gpu.remote_tensor(memfd, [100], "u8")
        assert tensor.overlaps(other)
        del tensor, other


def test_gpu_tensors_by_address(gpu: Any, context: l0py.Context) -> None:
    with context.alloc_host(ODD) as memory, nothing_leaks():
        gpu.remote_tensor(memory, [16], "f32", offset=64)
        gpu.remote_tensor(memory, [16], "f32", tensor_type="INPUT")
        gpu.remote_tensor(memory, [1000], "f32", route="USM_USER_BUFFER")
        at, base = hex(memory.address + 64), hex(memory.address)
        pointer = {"SHARED_MEM_TYPE": "CPU_VA", "CPU_VA_SIZE": "64"}
        assert gpu.remote_context.asked == [
            {**pointer, "CPU_VA": at, "CPU_VA_ACCESS": "READ_WRITE"},
            {**pointer, "CPU_VA": base, "CPU_VA_ACCESS": "READ"},
            {"SHARED_MEM_TYPE": "USM_USER_BUFFER", "MEM_HANDLE": base},
        ]


def test_what_the_gpu_cannot_take(gpu: Any, context: l0py.Context, memfd: int) -> None:
    with context.alloc_host(ODD) as memory, context.alloc_host(ODD, exportable=True) as exportable, nothing_leaks():
        for source, keywords, says in (
            (memory, {"offset": 4}, "multiples of 64"),
            (memory, {"route": "BUFFER_FROM_HANDLE"}, "has no fd"),
            (exportable, {"route": "BUFFER_FROM_HANDLE", "offset": 64}, "from its first byte, not from byte 64"),
            (memfd, {"route": "CPU_VA"}, "neither an fd nor an address"),
            (memfd, {"route": "USM_USER_BUFFER"}, "has no address"),
        ):
            with pytest.raises(CopyRequired, match=says):
                gpu.remote_tensor(source, [16], "f32", **keywords)
        with pytest.raises(CopyRequired, match="multiples of 64"):
            gpu.remote_tensor(memory, [15], "f32")
        with pytest.raises(TensorMismatch, match="none of BUFFER_FROM_HANDLE, CPU_VA, USM_USER_BUFFER"):
            gpu.remote_tensor(memory, [16], "f32", route="SHARED_BUF")
        assert gpu.remote_context.asked == []
        gpu.remote_context.error = RuntimeError("[GPU] no")
        for source, how in ((exportable, "BUFFER_FROM_HANDLE"), (memory, "CPU_VA")):
            with pytest.raises(ImportRefused, match=rf"did not import the memory by {how}: \[GPU\] no"):
                gpu.remote_tensor(source, [16], "f32")
    with context.alloc_device(ODD) as device, pytest.raises(CopyRequired, match="neither an fd nor an address"):
        gpu.remote_tensor(device, [16], "f32")


def test_the_names_are_those_of_the_headers() -> None:
    if discovery.openvino_version() < (2026, 4):
        pytest.skip("written against the headers of 2026.4")
    header = Path(ov.__file__).parent / "include/openvino/runtime/intel_gpu/remote_properties.hpp"
    text = header.read_text(encoding="utf-8")
    for request in (
        properties.gpu_buffer(3),
        properties.gpu_pointer(4096, 64, writable=True),
        properties.gpu_pointer(4096, 64, writable=False),
        properties.gpu_usm(4096),
        properties.cl_context(4096, 1),
    ):
        for name, value in request.items():
            assert f'{{"{name}"}}' in text, f"there is no property {name}"
            if value.isupper():
                assert f'str == "{value}"' in text, f"{name} cannot be {value}"


def test_strings_are_read_as_numbers() -> None:
    """What the properties rely on, as far as Python can ask for it."""
    assert ov.OVAny(properties.gpu_buffer(12)["OS_HANDLE"]).astype(int) == 12
    assert ov.OVAny(properties.gpu_pointer(4096, 1 << 40, writable=True)["CPU_VA_SIZE"]).astype(int) == 1 << 40
    assert properties.cl_context(0x5F, 1) == {
        "CONTEXT_TYPE": "OCL",
        "OCL_CONTEXT": "0x5f",
        "OCL_CONTEXT_DEVICE_ID": "1",
    }
