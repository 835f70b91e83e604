from __future__ import annotations

import ctypes
import gc
import threading
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dlpack_structs import Versioned

import l0py
from l0py import dlpack
from l0py._ffi import ffi
from l0py._ffi import lib as c

if TYPE_CHECKING:
    from collections.abc import Iterator

FORMATS = ["|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16"]

pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
rename = ctypes.pythonapi.PyCapsule_SetName
rename.argtypes = [ctypes.py_object, ctypes.c_char_p]


USED = b"used_dltensor_versioned"


def consume(capsule: Any) -> Versioned:
    """As a consumer does; who must then call the deleter."""
    managed = Versioned.from_address(pointer_of(capsule, b"dltensor_versioned"))
    rename(capsule, USED)
    return managed


def end(managed: Versioned) -> None:
    managed.deleter(ctypes.addressof(managed))


def name_of(capsule: Any) -> bytes:
    return bytes(ffi.string(c.l0_capsule_name(id(capsule))))


@pytest.fixture(autouse=True)
def no_tensors_left() -> Iterator[None]:
    yield
    if dlpack.count():
        gc.collect()
    assert dlpack.count() == 0


@pytest.fixture
def memory(context: l0py.Context) -> Any:
    made = context.alloc_host(4096)
    made.fill(0)
    yield made
    if dlpack.count():
        gc.collect()
    made.close()


@pytest.mark.parametrize("text", FORMATS)
def test_numpy_takes_every_format(memory: l0py.Memory, text: str) -> None:
    array = np.from_dlpack(memory.typed(text, (3, 5)))
    assert (array.shape, array.dtype, array.flags.writeable) == ((3, 5), np.dtype(text), True)
    assert array.ctypes.data == memory.address
    array[2, 4] = 1
    assert memory.numpy(text)[14] == 1
    memory.numpy(text)[0] = 1
    assert array[0, 0] == 1


def test_memory_itself_is_bytes(memory: l0py.Memory) -> None:
    assert memory.__dlpack_device__() == (1, 0)
    array = np.from_dlpack(memory)
    assert (array.shape, array.dtype) == ((4096,), np.uint8)
    array[4095] = 7
    assert memory.view()[4095] == 7


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_torch_takes_and_gives_every_format(python: Any) -> None:
    """In a process of its own: with PyTorch about, each collection of garbage takes a third of a second."""
    script = """
import mmap
import torch
import l0py
from l0py import interop
context = l0py.Context(l0py.find_device())
memory = context.alloc_host(4096)
for name, text in {
    "bool": "|b1", "uint8": "|u1", "int64": "<i8", "float16": "<f2", "float32": "<f4", "complex64": "<c8",
    "bfloat16": "bfloat16", "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2",
}.items():
    memory.fill(0)
    tensor = torch.from_dlpack(memory.typed(text, (2, 3)))
    assert (tensor.dtype, tensor.data_ptr()) == (getattr(torch, name), memory.address), name
    tensor[:] = 1
    assert any(memory.view()[: tensor.element_size()]), name
    found = interop.describe(tensor)
    assert (found.address, found.shape, found.format, found.protocol) == (memory.address, (2, 3), text, "dlpack")
del tensor, found
memory.close()

whole = torch.arange(24.0).reshape(4, 6)
part = interop.describe(whole[1:, ::2])
assert (part.address, part.shape, part.strides) == (whole.data_ptr() + 24, (3, 3), (24, 8))
assert interop.describe(whole.T).strides == (4, 24)
try:
    interop.describe(torch.ones(2, requires_grad=True))
    raise SystemExit("it can be shared")
except BufferError:
    pass

tensor = torch.frombuffer(mmap.mmap(-1, 4096), dtype=torch.bfloat16).reshape(4, -1)
with context.import_array(tensor) as memory:
    tensor[3, 1] = 1.0
    assert memory.view("H", (4, 512))[3, 1] == 0x3F80
    memory.fill(0)
    assert tensor.sum() == 0
"""
    done = python(script)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_tensor_in_the_capsule(memory: l0py.Memory) -> None:
    managed = consume(memory.typed("<f4", (2, 1, 3)).__dlpack__(max_version=(1, 0)))
    shown = managed.tensor
    assert (managed.major, managed.flags) == (1, 0)
    assert (shown.data, shown.device_type, shown.device_id, shown.ndim) == (memory.address, 1, 0, 3)
    assert (shown.code, shown.bits, shown.lanes, shown.byte_offset) == (2, 32, 1, 0)
    assert (shown.shape[:3], shown.strides[:3]) == ([2, 1, 3], [3, 3, 1])
    end(managed)


def test_shapes_at_the_edge(memory: l0py.Memory) -> None:
    assert np.from_dlpack(memory.typed("<f4", ())).shape == ()
    assert np.from_dlpack(memory.typed("<f4", (0, 7))).shape == (0, 7)
    assert np.from_dlpack(memory.typed("<f8")).shape == (512,)
    for shape in ((-1,), (1025,), (1 << 62, 4), (0, 1 << 62, 4), (-2, -2)):
        with pytest.raises(l0py.InvalidArgument, match="does not fit"):
            memory.typed("<f4", shape)
    for wrong in ("O", "<f3", "", "float32", "<u1x", "<i4[s]"):
        with pytest.raises(l0py.InvalidArgument, match="is no format"):
            memory.typed(wrong)
    with pytest.raises(TypeError):
        memory.typed("<f4", (1.5,))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("version", "name"),
    [(None, b"dltensor"), ((0, 8), b"dltensor"), ((1, 0), b"dltensor_versioned"), ((2, 1), b"dltensor_versioned")],
)
def test_the_consumer_s_version_decides(memory: l0py.Memory, version: Any, name: bytes) -> None:
    capsule = memory.__dlpack__(max_version=version)
    assert name_of(capsule) == name
    taken = dlpack.take(capsule)
    assert name_of(capsule) == b"used_" + name
    assert taken.data == memory.address
    with pytest.raises(l0py.InvalidArgument, match="consumed before"):
        dlpack.take(capsule)
    del taken


def test_what_is_read_only_is_said_to_be(context: l0py.Context, memfd: int) -> None:
    with context.import_dma_buf(memfd, read_only=True) as memory:
        assert not np.from_dlpack(memory).flags.writeable
        assert l0py.interop.describe(memory).read_only
        with pytest.raises(BufferError, match="read-only"):
            memory.__dlpack__()
        managed = consume(memory.typed("<u4").__dlpack__(max_version=(1, 1)))
        assert managed.flags == c.L0_DLPACK_READ_ONLY
        end(managed)
        copy = np.from_dlpack(memory, copy=True)
        copy[0] = 1
        assert dlpack.take(memory.__dlpack__(copy=True)).flags == 0
        del copy
        gc.collect()


def test_a_copy_is_one(memory: l0py.Memory) -> None:
    memory.fill(5)
    copy = np.from_dlpack(memory.typed("<u4", (4, 4)), copy=True)
    memory.fill(6)
    assert (copy == 0x05050505).all()
    assert copy.ctypes.data % 256 == 0
    assert dlpack.count() == 1
    memory.close()  # nothing of it is in use
    assert copy.sum() == 16 * 0x05050505


def test_a_copy_says_so(memory: l0py.Memory) -> None:
    managed = consume(memory.__dlpack__(max_version=(1, 0), copy=True))
    assert managed.flags == c.L0_DLPACK_COPIED
    end(managed)
    assert dlpack.take(memory.__dlpack__(max_version=(1, 0), copy=False)).flags == 0


def test_requests_that_cannot_be_met(memory: l0py.Memory, context: l0py.Context) -> None:
    for device in ((2, 0), (14, 0), (1, 1)):
        with pytest.raises(BufferError, match="only to"):
            memory.__dlpack__(dl_device=device)
    assert np.from_dlpack(memory, device="cpu").size == 4096
    for stream in (0, 1, -1):
        with pytest.raises(l0py.InvalidArgument, match="stream"):
            memory.__dlpack__(stream=stream)
    with pytest.raises(BufferError, match="no type"):
        memory.typed(">f4").__dlpack__()
    with pytest.raises(BufferError, match="no type"):
        memory.typed("V3").__dlpack__()
    with context.alloc_device(4096) as device_memory:
        for ask in (device_memory.__dlpack__, device_memory.__dlpack_device__):
            with pytest.raises(BufferError, match="export it as a dma-buf"):
                ask()
        with pytest.raises(l0py.NotSupported):
            device_memory.typed("<f4")


def test_a_capsule_that_nobody_consumes(context: l0py.Context, no_leaks: None) -> None:
    memory = context.alloc_host(4096)
    capsules = [memory.__dlpack__(), memory.__dlpack__(max_version=(1, 0))]
    for _ in range(2):
        with pytest.raises(l0py.InUse, match=r"DLPack tensors \(2, consumed or not\)"):
            memory.close()
    del capsules
    memory.close()


def test_a_consumer_that_never_ends_it(context: l0py.Context, no_leaks: None) -> None:
    memory = context.alloc_host(4096)
    managed = consume(memory.__dlpack__(max_version=(1, 0)))
    gc.collect()
    with pytest.raises(l0py.InUse, match=r"DLPack tensors \(1,"):
        memory.close()
    end(managed)
    memory.close()


def test_tensors_keep_the_memory_that_nobody_else_holds(context: l0py.Context, no_leaks: None) -> None:
    array = np.from_dlpack(context.alloc_host(4096).typed("<i4"))
    gc.collect()
    array[:] = 3
    part = array[10:20]
    del array
    assert part.sum() == 30


def test_an_end_on_a_thread_that_python_does_not_know(context: l0py.Context, no_leaks: None) -> None:
    libc = ctypes.CDLL(None)
    memory = context.alloc_host(4096)
    ends = [consume(memory.__dlpack__(max_version=(1, 0))) for _ in range(8)]
    threads = []
    for managed in ends:
        thread = ctypes.c_ulong()
        start, argument = ctypes.cast(managed.deleter, ctypes.c_void_p), ctypes.c_void_p(ctypes.addressof(managed))
        assert libc.pthread_create(ctypes.byref(thread), None, start, argument) == 0
        threads.append(thread)
    for thread in threads:
        assert libc.pthread_join(thread, None) == 0
    memory.close()


def test_threads_that_make_and_drop(memory: l0py.Memory) -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(300):
                np.from_dlpack(memory)[0]
                memory.__dlpack__()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_child_of_a_fork_ends_its_copies_alone(python: Any) -> None:
    script = """
import gc, os
import numpy as np
import l0py
from l0py import dlpack, softdriver
context = l0py.Context(l0py.find_device())
memory = context.alloc_host(4096)
array, capsule = np.from_dlpack(memory), memory.__dlpack__()
softdriver.record_calls()
softdriver.reset_record()
child = os.fork()
if child == 0:
    del array, capsule
    gc.collect()
    try:
        memory.__dlpack__()
    except l0py.Closed:
        os._exit(dlpack.count() or len(softdriver.record()["calls"]))
    os._exit(77)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert dlpack.count() == 2
array[:] = 1
assert bytes(memory.view()[:2]) == bytes([1, 1])
"""
    done = python(script, PYTHONWARNINGS="ignore")  # of forks beside threads
    assert (done.returncode, done.stderr) == (0, "")


def test_the_interpreter_ends_quietly_with_tensors_about(python: Any) -> None:
    script = """
import sys
import numpy as np
import l0py
context = l0py.Context(l0py.find_device())
memory = context.alloc_host(4096)
cycle = [memory.__dlpack__(), np.from_dlpack(memory), memory.typed("<f4"), l0py.interop.describe(np.arange(3)),
         memory.__dlpack__(max_version=(1, 0), copy=True), l0py.interop.capsule(memory), l0py.interop.capsule(context)]
cycle.append(cycle)
sys.modules["kept"] = cycle
class Late:
    def __init__(self): self.capsule = memory.__dlpack__()
    def __del__(self): self.capsule = None
late = Late()
"""
    done = python(script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
