"""pyopencl on PoCL, whose device is the CPU: kernels write what the NPU reads, and read what it wrote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from npu_helpers import nothing_leaks
from peer_helpers import COUNT, KERNELS, PAGE, SIZE, Runtime, require

import l0py

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from peer_helpers import Exchange

pytestmark = [pytest.mark.own_process, pytest.mark.usefixtures("runtime")]


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    require("pyopencl", "pocl_binary_distribution")
    return Runtime({"POCL_CACHE_DIR": str(tmp_path), "PYOPENCL_NO_CACHE": "1"})


@dataclass
class Queue:
    """A queue and what is run on it. Memory is a Buffer or SVM."""

    cl: Any
    context: Any
    queue: Any
    program: Any

    def over(self, array: Any) -> Any:
        """A buffer whose storage is the array's own."""
        flags = self.cl.mem_flags
        return self.cl.Buffer(self.context, flags.READ_WRITE | flags.USE_HOST_PTR, hostbuf=array)

    def write(self, target: Any) -> Callable[[Any], None]:
        def write(values: Any) -> None:
            self._run("count_from", target, values[0])
            if isinstance(target, self.cl.Buffer):
                self._map(target)

        return write

    def read(self, source: Any) -> Callable[[], Any]:
        def read() -> Any:
            if isinstance(source, self.cl.Buffer):
                self._map(source)
            values = np.empty(COUNT, np.float32)
            copy = self.over(values)
            self._run("reread", source, copy)
            self._map(copy)
            return values

        return read

    def address(self, memory: Any) -> int:
        found = np.zeros(1, np.uint64)
        copy = self.over(found)
        self._run("where_is", memory, copy, size=1)
        self._map(copy)
        return int(found[0])

    def _run(self, name: str, *arguments: Any, size: int = COUNT) -> None:
        self.cl.Kernel(self.program, name)(self.queue, (size,), None, *arguments)
        self.queue.finish()

    def _map(self, buffer: Any) -> None:
        """After a map the host's pages hold what kernels wrote, after an unmap kernels see what is in them."""
        flags = self.cl.map_flags
        array, _ = self.cl.enqueue_map_buffer(
            self.queue, buffer, flags.READ | flags.WRITE, 0, (buffer.size,), np.uint8, is_blocking=True
        )
        array.base.release(self.queue)
        self.queue.finish()


def open_queue() -> Queue:
    import pyopencl as cl

    (platform,) = (one for one in cl.get_platforms() if one.name == "Portable Computing Language")
    context = cl.Context(platform.get_devices())
    return Queue(cl, context, cl.CommandQueue(context), cl.Program(context, KERNELS).build())


def buffers(opencl: Queue, source: l0py.Memory, target: l0py.Memory) -> tuple[Any, Any]:
    x, y = opencl.over(source.numpy("f4")), opencl.over(target.numpy("f4"))
    assert (opencl.address(x), opencl.address(y)) == (source.address, target.address)
    return x, y


def pointers(opencl: Queue, source: l0py.Memory, target: l0py.Memory) -> tuple[Any, Any]:
    """PoCL does not claim fine-grained system SVM, but its device is the CPU: a pointer is a pointer."""
    return opencl.cl.SVM(source.numpy("f4")), opencl.cl.SVM(target.numpy("f4"))


@pytest.mark.parametrize("over", [buffers, pointers], ids=["USE_HOST_PTR", "SVM"])
def test_our_memory_is_opencl_s(exchange: Exchange, context: l0py.Context, over: Any) -> None:
    opencl = open_queue()

    def run() -> None:
        with context.alloc_host(SIZE, exportable=True) as source, context.alloc_host(SIZE, exportable=True) as target:
            at_both_ends(source, target)

    def at_both_ends(source: l0py.Memory, target: l0py.Memory) -> None:
        x, y = over(opencl, source, target)
        exchange(source, target, opencl.write(x), opencl.read(y))
        with pytest.raises(l0py.InUse):  # as long as OpenCL has it
            source.close()

    run()
    with nothing_leaks():
        run()


def test_its_svm_becomes_memory(exchange: Exchange, context: l0py.Context) -> None:
    """SVM has no alignment to pages: those that lie wholly in it are used."""
    opencl = open_queue()
    flags = opencl.cl.svm_mem_flags.READ_WRITE | opencl.cl.svm_mem_flags.SVM_FINE_GRAIN_BUFFER
    arrays = []
    for _ in range(2):
        whole = opencl.cl.svm_empty(opencl.context, flags, SIZE + PAGE, np.uint8)
        begin = -whole.ctypes.data % PAGE
        arrays.append(whole[begin : begin + SIZE].view(np.float32))
    x, y = arrays
    with nothing_leaks(), context.import_buffer(x) as source, context.import_buffer(y) as target:
        exchange(source, target, opencl.write(opencl.cl.SVM(x)), opencl.read(opencl.cl.SVM(y)))
        source.view("f")[7] = 11
        assert opencl.read(opencl.cl.SVM(x))()[7] == 11
