"""Where the models run: the NPU through l0py and ovadapter, or the CPU plugin through plain memory."""

from __future__ import annotations

import mmap
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import openvino as ov

import l0py
import ovadapter
from ovadapter.demo.ocr import INPUT, OUTPUT

if TYPE_CHECKING:
    from typing_extensions import Self

    from l0py.dmabuf import Fd

Array = npt.NDArray[Any]


class Machine(Protocol):
    """What the main job asks of the place where the models run. It owns all the memory that it hands out."""

    device: str  # OpenVINO's name
    device_name: str
    driver: str
    loader: dict[str, str]

    def take(self, fd: Fd, size: int) -> Any:
        """Memory of another process, seen through its descriptor (which stays the caller's)."""

    def allocate(self, size: int) -> Any:
        """New memory."""

    def array(self, memory: Any, dtype: str, shape: tuple[int, ...]) -> Array:
        """The same memory as an array; it must be gone before the machine is closed."""

    def bind(self, request: Any, source: Any, result: Any) -> Any:
        """A request's input and output put into memory; has `infer()`, `verdict(name)` and `close()`."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None:
        """Releases all memory."""


def open_machine(device: str, core: ov.Core) -> Machine:
    """The place where the models run: "NPU" or "CPU". Raises l0py.Error when there is no NPU."""
    if device == "NPU":
        return _Npu(core)
    return _Cpu()


class _Npu:
    """OpenVINO's NPU plugin, fed through ovadapter from memory of a Level Zero context that l0py made."""

    device = "NPU"

    def __init__(self, core: ov.Core) -> None:
        device = l0py.find_device("npu")
        self._npu = ovadapter.NpuContext(core)
        self._open = ExitStack()
        self._context = self._open.enter_context(l0py.Context(device))
        driver = device.driver
        self.device_name = str(device.name)
        self.driver = "software" if driver.is_software else f"{device.name} {driver.properties.version}"
        loader = l0py.loader.info()
        self.loader = {
            "source": loader.source,
            "version": loader.version,
            "path": loader.path,
            "reason": loader.reason,
        }

    def take(self, fd: Fd, size: int) -> Any:
        return self._open.enter_context(self._context.import_dma_buf(fd, size))

    def allocate(self, size: int) -> Any:
        return self._open.enter_context(self._context.alloc_host(size, exportable=True))

    def array(self, memory: Any, dtype: str, shape: tuple[int, ...]) -> Array:
        array: Array = memory.numpy(dtype, shape)
        return array

    def bind(self, request: Any, source: Any, result: Any) -> Any:
        return self._npu.bind(request, inputs={INPUT: source}, outputs={OUTPUT: result})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)


class _Cpu:
    """The CPU plugin on ordinary memory. It claims nothing about copies: nobody could prove it."""

    device = "CPU"

    def __init__(self) -> None:
        self.device_name = "OpenVINO's CPU plugin"
        self.driver = "none"
        self.loader: dict[str, str] = {}

    def take(self, fd: Fd, size: int) -> Array:
        return np.frombuffer(mmap.mmap(fd.fileno(), size), np.uint8)

    def allocate(self, size: int) -> Array:
        return np.zeros(size, np.uint8)

    def array(self, memory: Array, dtype: str, shape: tuple[int, ...]) -> Array:
        return memory.view(dtype).reshape(shape)

    def bind(self, request: Any, source: Array, result: Array) -> Any:
        model = request.get_compiled_model()
        for port, memory in ((model.input(), source), (model.output(), result)):
            array = self.array(memory, port.get_element_type().to_dtype().str, tuple(port.shape))
            request.set_tensor(port, ov.Tensor(array, shared_memory=True))
        return _CpuBinding(request)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass


class _CpuBinding:
    def __init__(self, request: Any) -> None:
        self.infer = request.infer

    def verdict(self, _name: str) -> None:
        return None

    def close(self) -> None:
        pass
