"""The same memory for OpenVINO's other devices: the CPU plugin, and the GPU plugin (not run on hardware)."""

from __future__ import annotations

import operator
import os
from contextlib import ExitStack, nullcontext, suppress
from typing import TYPE_CHECKING, Any, SupportsIndex

from l0py.dmabuf import Fd

from . import properties, rules
from .binding import Binding
from .errors import AdapterError, CopyRequired, GpuMissing, ImportRefused
from .source import make_source
from .tensor import Bytes, Import, Tensor, byte_size, element_type, reason, static_shape
from .wish import Wish

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import openvino as ov

    from .source import OsHandle

__all__ = ["CpuContext", "GpuContext"]

_CACHE_LINE = 64
"""What the GPU's OpenCL runtime demands of addresses and sizes before it uses host memory in place."""


class _Plugin:
    """What tensors and bindings of every plugin have in common."""

    device_name: str
    routes: tuple[str, ...]
    unnamed_route: str | None = None

    def __init__(self, core: ov.Core | None = None) -> None:
        try:
            import openvino as ov
        except ModuleNotFoundError as error:
            raise AdapterError("openvino is not installed: install l0py with its extra `openvino`") from error
        if not (core is None or isinstance(core, ov.Core)):
            raise TypeError(f"a {type(self).__name__} is made of an openvino.Core, not of {type(core).__name__}")
        self.core = ov.Core() if core is None else core

    def remote_tensor(
        self,
        source: Any,
        shape: Iterable[int],
        type: Any,  # noqa: A002 - OpenVINO's own name for it
        *,
        route: str | None = None,
        tensor_type: str = "BINDED",
        offset: SupportsIndex = 0,
        allow_copy: bool = False,  # noqa: ARG002 - nothing is copied here, so there is nothing to allow
    ) -> Tensor:
        """A tensor over memory that the plugin uses in place; arguments and errors are `NpuContext.remote_tensor`'s."""
        element = element_type(type)
        sizes = static_shape(shape)
        start = operator.index(offset)
        wish = Wish(make_source(source), start, sizes, element, tensor_type)
        try:
            wish.require_fit(route, self.routes)
            return self._make(wish, route)
        except BaseException:
            wish.source.release()
            raise

    def _make(self, wish: Wish, route: str | None) -> Tensor:
        raise NotImplementedError

    def bind(
        self,
        request: ov.InferRequest,
        inputs: Mapping[Any, Any] | None = None,
        outputs: Mapping[Any, Any] | None = None,
        *,
        restore: bool = True,
    ) -> Binding:
        """Puts a request's inputs and outputs into memory, as `NpuContext.bind` does: all of them or none.

        Verdicts over its tensors are unknown: there is no record of what these plugins ran on.
        """
        return Binding(self, request, inputs or {}, outputs or {}, allow_copy=False, restore=restore)

    def host_tensor(self, shape: tuple[int, ...], type_: ov.Type) -> ov.Tensor:
        """A new tensor of OpenVINO's own (for `Binding`)."""
        import openvino as ov

        return ov.Tensor(type_, ov.Shape(list(shape)))


class CpuContext(_Plugin):
    """OpenVINO's CPU plugin, which reads and writes whatever memory a tensor lies in.

    Without `core` a new one is made. Device memory and fds that cannot be mapped raise `CopyRequired`.
    """

    device_name = "CPU"
    routes = ("view",)

    def _make(self, wish: Wish, route: str | None) -> Tensor:  # noqa: ARG002 - there is one route alone
        source = wish.source
        if source.host_address is not None:
            address = source.host_address + wish.offset
            return wish.granted("view", Bytes(address, wish.size, source.hold), address)
        with source.duplicate() or nullcontext() as fd:
            mapped = _map(fd, source.size) if isinstance(fd, Fd) else None
        if mapped is None:
            raise CopyRequired(
                f"{rules.HOST_BLIND}, which {source.description} is not",
                "Take host memory, or an fd that can be mapped",
            )
        address = mapped.ctypes.data + wish.offset
        return wish.granted("view", Bytes(address, wish.size, mapped), address)

    def __repr__(self) -> str:
        return "<ovadapter.CpuContext>"


class GpuContext(_Plugin):
    """OpenVINO's GPU plugin and its remote context. **Not run on hardware**: written against the wheel's headers.

    Without `core` a new one is made. `cl_context` is the handle of an OpenCL context in which the plugin is to work,
    with the index of the device in it; a handle that is none crashes the plugin. Raises `GpuMissing` with the reason.

    Routes of `remote_tensor`: `"BUFFER_FROM_HANDLE"` imports by fd (a dma-buf; the memory must be exportable, and the
    tensor begins at its first byte), `"CPU_VA"` by address (address and size are multiples of 64), `"USM_USER_BUFFER"`
    takes USM of the plugin's own OpenCL context, and only when it is asked for: nobody can check that it is.
    """

    device_name = "GPU"
    routes = ("BUFFER_FROM_HANDLE", "CPU_VA", "USM_USER_BUFFER")

    def __init__(self, core: ov.Core | None = None, *, cl_context: int | None = None, device_index: int = 0) -> None:
        super().__init__(core)
        try:
            if cl_context is None:
                self.remote_context = self.core.get_default_context("GPU")
            else:
                wanted = properties.cl_context(cl_context, device_index)
                self.remote_context = self.core.create_context("GPU", wanted)
        except RuntimeError as error:
            raise GpuMissing(f"OpenVINO has no GPU. It says: {reason(error)}") from error

    def _make(self, wish: Wish, route: str | None) -> Tensor:
        if route == "USM_USER_BUFFER":
            return self._by_usm(wish)
        if route == "BUFFER_FROM_HANDLE" and wish.offset:
            raise CopyRequired(
                f"the GPU plugin imports an fd from its first byte, not from byte {wish.offset}",
                "Give the tensor a buffer of its own",
            )
        handle = wish.source.duplicate() if route != "CPU_VA" and wish.offset == 0 else None
        if handle is not None:
            with ExitStack() as undo:
                fd = undo.enter_context(handle)
                tensor = self._by_fd(wish, fd)
                undo.pop_all()  # it is the tensor's now
            return tensor
        if route == "BUFFER_FROM_HANDLE":
            raise CopyRequired(f"{wish.source.description} has no fd", "Allocate it with exportable=True")
        return self._by_address(wish)

    def _by_fd(self, wish: Wish, fd: OsHandle) -> Tensor:
        if isinstance(fd, Fd):
            return self._granted(wish, "BUFFER_FROM_HANDLE", properties.gpu_buffer(fd.fileno()), _Lent(fd))
        return self._granted(wish, "BUFFER_FROM_HANDLE", properties.gpu_buffer(fd.handle), fd)

    def _by_address(self, wish: Wish) -> Tensor:
        address = wish.source.host_address
        if address is None:
            raise CopyRequired(
                f"{wish.source.description} has neither an fd nor an address that the host may touch",
                "Allocate it with exportable=True, or as host memory",
            )
        if (address + wish.offset) % _CACHE_LINE or wish.size % _CACHE_LINE:
            raise CopyRequired(
                f"{rules.GPU_LINES}: {wish.source.description}, {wish.size} bytes from byte {wish.offset}",
                "Allocate it with exportable=True, or choose another size and offset",
            )
        writable = wish.tensor_type != "INPUT"
        request = properties.gpu_pointer(address + wish.offset, wish.size, writable=writable)
        return self._granted(wish, "CPU_VA", request, None)

    def _by_usm(self, wish: Wish) -> Tensor:
        if wish.address is None:
            raise CopyRequired(f"{wish.source.description} has no address", "Leave the route open")
        return self._granted(wish, "USM_USER_BUFFER", properties.gpu_usm(wish.address), None)

    def _granted(self, wish: Wish, route: str, request: dict[str, str], lent: object) -> Tensor:
        import openvino as ov

        try:
            remote = self.remote_context.create_tensor(wish.type, ov.Shape(list(wish.shape)), request)
        except RuntimeError as error:
            raise ImportRefused(f"the GPU plugin did not import the memory by {route}: {reason(error)}") from error
        size = byte_size(wish.shape, wish.type)
        imported = Import(remote, route, size, (self.remote_context, wish.source.hold, lent), 0)
        visible = None if wish.source.host_address is None else wish.source.host_address + wish.offset
        return wish.granted(route, imported, visible)

    def __repr__(self) -> str:
        return f"<ovadapter.GpuContext {self.remote_context.get_device_name()!r} (not run on hardware)>"


class _Lent:
    """A descriptor that the GPU's runtime may read or close as long as its tensor lives: nobody could tell which."""

    def __init__(self, fd: Fd) -> None:
        self._fd = fd
        self._identity = fd.identity

    def __del__(self) -> None:
        if self._fd.closed:  # there is no tensor
            return
        number = self._fd.detach()
        with suppress(OSError):  # closed meanwhile
            status = os.fstat(number)
            if (status.st_dev, status.st_ino) == self._identity:
                os.close(number)


def _map(fd: Fd, size: int) -> Any:
    """What is behind an fd as an array of bytes; None where the kernel does not map it."""
    import numpy as np

    try:
        return np.frombuffer(fd.mmap(size), np.uint8)
    except (OSError, ValueError):
        return None
