"""What may be given as memory, and what is refused before OpenVINO or the driver sees it; nothing leaks either way."""

from __future__ import annotations

import array
import errno
import mmap
import os
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from npu_helpers import aligned_array, nothing_leaks

import l0py
import ovadapter
from l0py import dmabuf
from ovadapter import CopyRequired, ImportRefused, TensorMismatch


def test_an_fd_in_each_form(npu: ovadapter.NpuContext, memfd: int) -> None:
    with nothing_leaks():
        for source in (memfd, dmabuf.Fd.duplicate(memfd)):
            with npu.remote_tensor(source, [2048], "f32") as tensor:
                assert (tensor.route, tensor.mem_type) == ("SHARED_BUF", "SHARED_BUF")
                tensor.numpy()[:] = 7
                assert np.frombuffer(os.pread(memfd, 8192, 0), np.float32).tolist() == [7] * 2048
        del source, tensor
    os.fstat(memfd)  # it stayed the caller's


def test_the_fd_may_be_closed_at_once(npu: ovadapter.NpuContext, memfd: int) -> None:
    fd = dmabuf.Fd.duplicate(memfd)
    with npu.remote_tensor(fd, [8192], "u8") as tensor:
        fd.close()
        tensor.numpy()[:] = 9
        assert os.pread(memfd, 2, 0) == b"\x09\x09"


def test_fd_0_is_given_another_number(npu: ovadapter.NpuContext, memfd: int) -> None:
    kept = os.dup(0)
    try:
        os.dup2(memfd, 0)
        with npu.remote_tensor(0, [8192], "u8") as tensor:
            tensor.numpy()[0] = 3
            assert os.pread(memfd, 1, 0) == b"\x03"
        # exported while 0 is free, so that the export itself may become fd 0
        os.close(0)
        with l0py.Context(npu.device) as context, context.alloc_host(4096, exportable=True) as memory:
            assert npu.remote_tensor(memory, [4096], "u8").route == "SHARED_BUF"
    finally:
        os.dup2(kept, 0)
        os.close(kept)


def test_parts_of_an_fd_share_one_import(npu: ovadapter.NpuContext, memfd: int) -> None:
    first = npu.remote_tensor(memfd, [10], "f32", offset=4)
    second = npu.remote_tensor(memfd, [100], "u8", offset=5001)
    assert (first.route, second.route) == ("keeper", "keeper")
    assert second.address - first.address == 5001 - 4
    second.numpy()[:] = 1
    assert os.pread(memfd, 101, 5000) == b"\0" + b"\1" * 100


def closed_fd() -> int:
    fd = os.memfd_create("closed")
    os.close(fd)
    return fd


def pipe() -> int:
    read, write = os.pipe()
    os.close(write)
    return read


def empty_file() -> int:
    return os.memfd_create("empty")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (closed_fd, "not open"),
        (lambda: -1, "not open"),
        (lambda: 2**40, "not open"),
        (pipe, "a pipe"),
        (lambda: os.open("/", os.O_RDONLY), "a directory"),
        (lambda: os.open("/dev/null", os.O_RDWR), "a character device"),
        (empty_file, "no bytes"),
    ],
    ids=["closed", "negative", "huge", "pipe", "directory", "device", "empty"],
)
def test_bad_descriptors(npu: ovadapter.NpuContext, make: Any, says: str) -> None:
    fd = make()
    try:
        with nothing_leaks(), pytest.raises(l0py.BadDescriptor, match=says) as caught:
            npu.remote_tensor(fd, [1], "u8")
        assert isinstance(caught.value, OSError)
    finally:
        if says != "not open":
            os.close(fd)


def test_a_file_that_is_no_shared_memory(npu: ovadapter.NpuContext) -> None:
    # Not a temporary file: where /tmp is a tmpfs, its files are memory as good as a memfd's.
    with (
        Path(sys.executable).open("rb") as file,
        nothing_leaks(),
        pytest.raises(l0py.BadDescriptor, match=f"fd {file.fileno()} is a file on a disk") as caught,
    ):
        npu.remote_tensor(file.fileno(), [4096], "u8")
    assert caught.value.errno == errno.EINVAL


def test_a_memfd_that_may_not_be_written(npu: ovadapter.NpuContext, memfd: int) -> None:
    with (
        Path(f"/proc/self/fd/{memfd}").open("rb") as file,
        nothing_leaks(),
        pytest.raises(ImportRefused, match=rf"^fd {file.fileno()} .* is open for reading alone"),
    ):
        npu.remote_tensor(file.fileno(), [2048], "f32")


def test_whatever_has_a_descriptor(npu: ovadapter.NpuContext, memfd: int) -> None:
    with (
        Path(f"/proc/self/fd/{memfd}").open("r+b", buffering=0) as file,
        npu.remote_tensor(file, [2048], "f32") as tensor,
    ):
        assert tensor.route == "SHARED_BUF"
    with pytest.raises(l0py.BadDescriptor, match="closed file"):
        npu.remote_tensor(file, [2048], "f32")
    with socket.socket() as one, pytest.raises(l0py.BadDescriptor, match="is a socket"):
        npu.remote_tensor(one, [1], "u8")


@pytest.mark.parametrize("source", [None, 1.5, "memory", True, [1, 2]], ids=repr)
def test_what_is_no_memory(npu: ovadapter.NpuContext, source: Any) -> None:
    with nothing_leaks(), pytest.raises(TypeError, match="memory is"):
        npu.remote_tensor(source, [1], "u8")


@pytest.mark.parametrize(
    ("shape", "type_", "offset", "says"),
    [
        ([2049], "f32", 0, "too small"),
        ([2048], "f32", 1, "too small"),
        ([8192], "u8", -1, "offset -1 is negative"),
        ([2**40, 2**40], "f64", 0, "too small"),
        ([16385], "u4", 0, "too small"),
        ([0], "u8", 0, "below 1"),
        ([-1, 8], "u8", 0, "below 1"),
        ("ab", "u8", 0, "no static shape"),
        ("12", "u8", 0, "no static shape"),
        ([1.5], "u8", 0, "no static shape"),
        ([8], None, 0, "no element type"),
        ([8], ">f4", 0, "no element type"),
        ([8], "f33", 0, "no element type"),
        ([8], object(), 0, "no element type"),
        ([8], "string", 0, "no bytes"),
        ([8], "dynamic", 0, "no bytes"),
    ],
)
def test_what_does_not_fit(
    npu: ovadapter.NpuContext, memfd: int, shape: Any, type_: Any, offset: int, says: str
) -> None:
    with nothing_leaks(), pytest.raises(TensorMismatch, match=says):
        npu.remote_tensor(memfd, shape, type_, offset=offset)


@pytest.mark.parametrize(("count", "type_", "size"), [(16384, "u4", 8192), (65536, "u1", 8192), (21845, "u3", 8193)])
def test_types_of_less_than_a_byte(npu: ovadapter.NpuContext, memfd: int, count: int, type_: str, size: int) -> None:
    if size > 8192:
        with pytest.raises(TensorMismatch, match=f"too small for {size} bytes"):
            npu.remote_tensor(memfd, [count], type_)
    else:
        with npu.remote_tensor(memfd, [count], type_) as tensor:
            assert tensor.size == size
            assert tensor.numpy().shape == (size,)


def test_arrays(npu: ovadapter.NpuContext) -> None:
    array = aligned_array(8192)
    with npu.remote_tensor(array, [2048], "f32") as tensor:
        assert (tensor.route, tensor.address) == ("CPU_VA", array.ctypes.data)
        with npu.remote_tensor(array[100:500], [100], "f32") as inside:
            assert (inside.route, inside.address) == ("keeper", array.ctypes.data + 100)
    for skewed, odd in (
        (aligned_array(8192, skew=8), "address"),
        (aligned_array(8000), "size"),
        (aligned_array(8000, skew=8), "address and size"),
    ):
        with nothing_leaks(), pytest.raises(CopyRequired, match=f"its {odd} is no multiple of 4096") as caught:
            npu.remote_tensor(skewed, [2000], "f32")
        assert "allow_copy" in caught.value.way_out
        assert "import_pointer" in caught.value.way_out
        assert npu.remote_tensor(skewed, [2000], "f32", allow_copy=True).route == "copy"
    with pytest.raises(TensorMismatch, match="not C-contiguous"):
        npu.remote_tensor(array[::2], [4096], "u8")
    with pytest.raises(TensorMismatch, match="Python objects"):
        npu.remote_tensor(np.array([None]), [1], "u8")


def test_arrays_that_overlap(npu: ovadapter.NpuContext) -> None:
    array = aligned_array(8192)
    with npu.remote_tensor(array[:4096], [10], "u8") as part:
        assert part.route == "keeper"
        with pytest.raises(ImportRefused, match="already imported"):
            npu.remote_tensor(array, [8192], "u8")
    assert npu.remote_tensor(array, [8192], "u8").route == "CPU_VA"


def test_read_only_memory_is_for_inputs(npu: ovadapter.NpuContext) -> None:
    array = aligned_array(4096)
    array.flags.writeable = False
    with pytest.raises(TensorMismatch, match="read-only"):
        npu.remote_tensor(array, [4096], "u8")
    with npu.remote_tensor(array, [4096], "u8", tensor_type="INPUT") as tensor:
        assert not tensor.numpy().flags.writeable


@pytest.mark.parametrize("exportable", [True, False])
def test_memory_that_is_gone(npu: ovadapter.NpuContext, compiled: Any, exportable: bool) -> None:
    request = compiled.create_infer_request()
    with nothing_leaks():
        with l0py.Context(npu.device) as context:
            memory, other = (context.alloc_host(4096, exportable=exportable) for _ in range(2))
            memory.close()
            with pytest.raises(l0py.Closed):
                npu.remote_tensor(memory, [4096], "u8")
            with pytest.raises(l0py.Closed):
                npu.bind(request, {"xt": memory})
        with pytest.raises(l0py.Closed):  # of a closed context
            npu.remote_tensor(other, [4096], "u8")
        with pytest.raises(l0py.Closed):
            npu.bind(request, {"xt": other})
        other.close()
        del memory, other, context


def test_a_second_close_does_nothing(npu: ovadapter.NpuContext, compiled: Any) -> None:
    request = compiled.create_infer_request()
    with nothing_leaks():
        with l0py.Context(npu.device) as context:
            x, y = (context.alloc_host(4000, exportable=True) for _ in range(2))
            tensor = npu.remote_tensor(x, [1, 1000], "f32")
            binding = npu.bind(request, {"xt": tensor}, {"yt": y}, restore=False)
            ring = npu.ring(compiled, context, slots=2)
            for one in (ring, binding, tensor, x, y):
                for _ in range(3):
                    one.close()
        del x, y, tensor, binding, ring, context, one
        request.infer()
        del request


def test_memory_cannot_be_closed_while_a_tensor_is_over_it(npu: ovadapter.NpuContext, context: l0py.Context) -> None:
    for exportable in (True, False):
        memory = context.alloc_host(4096, exportable=exportable)
        tensor = npu.remote_tensor(memory, [4096], "u8")
        with pytest.raises(BufferError):
            memory.close()
        array = tensor.numpy()
        tensor.close()
        tensor.close()
        with pytest.raises(BufferError):  # the array holds on to it
            memory.close()
        del array
        memory.close()
        with pytest.raises(l0py.Closed):
            tensor.numpy()


def test_an_error_does_not_keep_memory_open(npu: ovadapter.NpuContext, context: l0py.Context) -> None:
    """Its traceback refers to all that was at hand: the `with` block must end with it, not with another error."""
    with pytest.raises(TensorMismatch, match="too small"), context.alloc_host(4096) as memory:
        npu.remote_tensor(memory, [4097], "u8")
    with pytest.raises(CopyRequired, match="no fd"), context.alloc_host(4096) as memory:
        npu.remote_tensor(memory, [4096], "u8", route="SHARED_BUF")


def test_kinds_of_memory(npu: ovadapter.NpuContext, context: l0py.Context) -> None:
    with context.alloc_shared(4096) as shared:
        assert npu.remote_tensor(shared, [4096], "u8").route == "CPU_VA"
    with context.alloc_device(4096, exportable=True) as device:
        assert npu.remote_tensor(device, [4096], "u8").route == "SHARED_BUF"
    with context.alloc_device(4096) as device:
        for asked in ({}, {"route": "CPU_VA"}, {"allow_copy": True}, {"offset": 8}):
            with pytest.raises(CopyRequired, match="the host may not touch device memory") as caught:
                npu.remote_tensor(device, [1024], "u8", **asked)
            assert caught.value.way_out == "Allocate it with exportable=True, and leave the route open"
    array = aligned_array(4096)
    with context.import_buffer(array) as imported:
        assert npu.remote_tensor(imported, [4096], "u8").route == "CPU_VA"


def test_routes_that_cannot_be(npu: ovadapter.NpuContext, context: l0py.Context) -> None:
    with context.alloc_host(8192) as memory:
        with pytest.raises(CopyRequired, match="has no fd"):
            npu.remote_tensor(memory, [2048], "f32", route="SHARED_BUF")
        with pytest.raises(CopyRequired, match="whole pages"):
            npu.remote_tensor(memory, [1000], "f32", route="CPU_VA")
        with pytest.raises(TensorMismatch, match="none of"):
            npu.remote_tensor(memory, [1000], "f32", route="cpu_va")
        with pytest.raises(TensorMismatch, match="none of"):
            npu.remote_tensor(memory, [1000], "f32", tensor_type="BOUND")
    with context.alloc_host(8192, exportable=True) as memory, pytest.raises(CopyRequired, match="first byte"):
        npu.remote_tensor(memory, [2047], "f32", offset=4, route="SHARED_BUF")


def test_offsets_may_be_any_index(npu: ovadapter.NpuContext, memfd: int) -> None:
    with npu.remote_tensor(memfd, [10], "u8", offset=np.int64(8)) as tensor:
        assert tensor.numpy().shape == (10,)
    with pytest.raises(TypeError):
        npu.remote_tensor(memfd, [10], "u8", offset=8.0)  # type: ignore[arg-type]


def test_device_memory_where_other_device_memory_was(npu: ovadapter.NpuContext, context: l0py.Context) -> None:
    """An import outlives the memory it was made from, and addresses are used again."""
    first = context.alloc_device(8192, exportable=True)
    with npu.remote_tensor(first, [8192], "u8", route="keeper") as old:
        address = first.address
        first.close()
        with context.alloc_device(8192, exportable=True) as second:
            if second.address != address:
                pytest.skip("the driver did not use the address again")
            second.fill(7)
            with npu.remote_tensor(second, [8192], "u8", route="keeper") as new:
                assert (new.numpy() == 7).all()
                assert not (old.numpy() == 7).any()


def test_arrays_of_swapped_bytes(npu: ovadapter.NpuContext) -> None:
    array = aligned_array(4096).view(">f4")
    with pytest.raises(TensorMismatch, match="order"):
        npu.remote_tensor(array, [1024], "f32", allow_copy=True)


class Dlpack:
    """An array that has DLPack and nothing else."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __dlpack__(self, **options: Any) -> Any:
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.data.__dlpack_device__()


class OnCuda(Dlpack):
    """What says that it lies in another device's memory."""

    def __dlpack_device__(self) -> Any:
        return 2, 0


class Usm:
    """An array as SYCL libraries describe theirs; nothing of SYCL is there."""

    def __init__(self, data: Any, kind: str) -> None:
        self.usm_type = kind
        self.data = data
        self.__sycl_usm_array_interface__ = {
            "data": (data.ctypes.data, True),
            "shape": data.shape,
            "typestr": data.dtype.str,
            "strides": None,
            "offset": 0,
            "syclobj": "level_zero:gpu:0",
            "version": 1,
        }


class Ze:
    """Level Zero memory of another library."""

    def __init__(self, memory: l0py.Memory, flags: int = 0) -> None:
        self.memory = memory
        self.flags = flags

    def __ze_memory__(self) -> tuple[int, ...]:
        return 1, self.memory.context.handle, self.memory.address, self.memory.size, self.flags


def floats() -> Any:
    """Two pages of floats."""
    return aligned_array(8192).view(np.float32).reshape(1, 2048)


FOREIGN = {
    "DLPack": Dlpack,
    "SYCL host": lambda data: Usm(data, "host"),
    "SYCL shared": lambda data: Usm(data, "shared"),
    "memoryview": memoryview,
}


@pytest.mark.parametrize("name", FOREIGN)
def test_arrays_of_others(name: str, npu: ovadapter.NpuContext, paged: Any) -> None:
    assert "dpctl" not in sys.modules
    request = paged.create_infer_request()
    request.infer()
    with nothing_leaks():
        data, result = floats(), floats()
        x, y = FOREIGN[name](data), FOREIGN[name](result)
        with npu.bind(request, {"xt": x}, {"yt": y}) as binding:
            for value in (1, 5):  # the second is written after the hand-over
                data[:] = value
                binding.infer()
                assert (result == value + 1).all()
            assert [binding.tensors[key].address for key in ("xt", "yt")] == [data.ctypes.data, result.ctypes.data]
            assert [verdict.copied for verdict in binding.verdicts().values()] == [False, False]
        wrong = FOREIGN[name](data.reshape(2048, 1))
        with pytest.raises(TensorMismatch, match=r"takes f32 \[1, 2048\], the memory given for it is f32 \[2048, 1\]"):
            npu.bind(request, {"xt": wrong})
        integers = FOREIGN[name](data.view(np.int32))
        with pytest.raises(TensorMismatch, match=r"is i32 \[1, 2048\]"):
            npu.bind(request, {"xt": integers})
        del x, y, wrong, integers, binding


def test_buffers(npu: ovadapter.NpuContext) -> None:
    with mmap.mmap(-1, 8192) as pages:
        with nothing_leaks(), npu.remote_tensor(pages, [2048], "f32") as tensor:
            tensor.numpy()[:] = 1
            assert pages[:4] == np.float32(1).tobytes()
            with pytest.raises(BufferError):
                pages.close()
            del tensor
        with pytest.raises(TensorMismatch, match="too small"):  # and the buffer is let go at once
            npu.remote_tensor(pages, [2049], "f32")
    for source in (array.array("f", range(1024)), bytearray(4096)):
        with nothing_leaks(), pytest.raises(CopyRequired, match="whole pages"):
            npu.remote_tensor(source, [1023], "f32")
    with pytest.raises(TensorMismatch, match="read-only"):
        npu.remote_tensor(bytes(4096), [1], "u8")


def test_level_zero_memory_of_others(npu: ovadapter.NpuContext, context: l0py.Context) -> None:
    with context.alloc_host(8192) as memory, context.alloc_device(8192) as device:
        with nothing_leaks(), npu.remote_tensor(Ze(memory), [2048], "f32") as tensor:
            assert (tensor.route, tensor.address) == ("CPU_VA", memory.address)
            del tensor
        with pytest.raises(TensorMismatch, match="read-only"):
            npu.remote_tensor(Ze(memory, 2), [2048], "f32")
        with nothing_leaks(), pytest.raises(CopyRequired, match="host may not touch"):
            npu.remote_tensor(Ze(device, 1), [2048], "f32")
        with pytest.raises(CopyRequired, match="host may not touch"):  # nobody could copy, either
            npu.remote_tensor(Ze(device, 1), [2048], "f32", allow_copy=True)
    with npu.context.alloc_host(8192) as memory, pytest.raises(CopyRequired, match="own context"):
        npu.remote_tensor(Ze(memory), [2048], "f32")


def test_arrays_of_others_that_cannot_be_shared(npu: ovadapter.NpuContext) -> None:
    data = aligned_array(8192).view(np.float32)
    with nothing_leaks():
        with pytest.raises(TensorMismatch, match=r"Dlpack of shape .* is not C-contiguous"):
            npu.remote_tensor(Dlpack(data[::2]), [1024], "f32")
        with pytest.raises(TensorMismatch, match="another order"):
            npu.remote_tensor(Usm(data.view(">f4"), "host"), [2048], "f32")
        with pytest.raises(CopyRequired, match="Usm of 8192 bytes"):
            npu.remote_tensor(Usm(data, "device"), [2048], "f32")
        with pytest.raises(l0py.NotSupported):
            npu.remote_tensor(OnCuda(data), [2048], "f32")


def test_memory_and_its_own_fd_overlap(npu: ovadapter.NpuContext, compiled: Any, context: l0py.Context) -> None:
    request = compiled.create_infer_request()
    with context.alloc_host(4000, exportable=True) as memory, memory.export() as fd, nothing_leaks():
        with context.import_dma_buf(fd) as again:
            for x, y in ((memory, fd), (fd, memory), (again, memory), (fd, again)):
                with pytest.raises(TensorMismatch, match="overlaps"):
                    npu.bind(request, {"xt": x}, {"yt": y})
        with npu.remote_tensor(memory, [500], "f32", route="keeper") as whole:
            with npu.remote_tensor(fd, [500], "f32", offset=2000) as behind:
                assert not whole.overlaps(behind)
            with npu.remote_tensor(fd, [501], "f32", offset=1996) as touching:
                assert whole.overlaps(touching)
        del again, x, y, whole, behind, touching
