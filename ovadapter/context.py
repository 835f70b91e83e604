"""OpenVINO's NPU context seen from l0py: borrowed, never owned."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, SupportsIndex

import l0py

from . import discovery, properties, verdict
from .binding import Binding
from .errors import NpuMissing
from .ring import Ring
from .routes import router_of
from .source import make_source
from .tensor import Tensor, element_type, static_shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import openvino as ov

__all__ = ["NpuContext"]


class NpuContext:
    """The NPU of an `openvino.Core` and its Level Zero context: makes tensors over memory and binds them to requests.

    All cores of a process share one Level Zero context, so tensors of one NpuContext go into requests of any core.
    Without `core` a new one is made. Make it before anything else uses the core's devices: OpenVINO looks for a loader
    once, and must find the one that l0py chose. Raises `NpuMissing` with the reason and the way out.
    """

    device_name: str = "NPU"
    unnamed_route: str | None = "keeper"

    def __init__(self, core: ov.Core | None = None) -> None:
        try:
            import openvino as ov
        except ModuleNotFoundError as error:
            raise NpuMissing("openvino is not installed: install l0py with its extra `openvino`") from error
        if not (core is None or isinstance(core, ov.Core)):
            raise TypeError(f"an NpuContext is made of an openvino.Core, not of {type(core).__name__}")
        self.core = ov.Core() if core is None else core
        self.remote_context = discovery.connect(self.core)
        self.l0_context = properties.l0_context(self.remote_context)
        self.device = l0py.find_device("npu")
        self.features = discovery.features(self.device)
        self.router = router_of(self.remote_context, self.features, software=self.device.driver.is_software)
        self._context = self._borrow()

    @property
    def context(self) -> l0py.Context:
        """OpenVINO's Level Zero context as a l0py.Context that does not own it.

        Memory allocated in it is copied by OpenVINO unless it is exportable: see the way out that `CopyRequired` names.
        """
        if self._context.closed:  # which closes nothing of OpenVINO's
            self._context = self._borrow()
        return self._context

    def _borrow(self) -> l0py.Context:
        return l0py.Context.from_handle(self.l0_context, self.device, owner=self.remote_context)

    def remote_tensor(
        self,
        source: Any,
        shape: Iterable[int],
        type: Any,  # noqa: A002 - OpenVINO's own name for it
        *,
        route: str | None = None,
        tensor_type: str = "BINDED",
        offset: SupportsIndex = 0,
        allow_copy: bool = False,
    ) -> Tensor:
        """A tensor over memory, used in place by the NPU plugin; or an exception.

        `source` is a l0py.Memory, a `Shared`, an fd (an int, or what has `fileno()`; it stays the caller's; on Windows
        a l0py.ntwin.NtHandle) or an array: of NumPy, or of any library that `l0py.interop.describe` understands
        (DLPack, SYCL, buffers). `shape` is static, `type` an openvino.Type, its name or a NumPy dtype, `offset` bytes.
        `route` asks for `"SHARED_BUF"` (import by handle), `"CPU_VA"` (import by address, whole pages) or `"keeper"`
        (inside the buffer, which is imported as a whole; any size and offset); without it the best one is taken.
        Read-only memory needs tensor_type="INPUT".

        Raises `CopyRequired` when the plugin would copy (`allow_copy=True` accepts that), `TensorMismatch` when the
        memory does not fit, `ImportRefused` when OpenVINO or the driver refuses it, l0py.errors.BadDescriptor for a bad
        fd, l0py.errors.Closed for closed memory. The plugin calls zeMemAllocHost and zeMemGetAllocProperties.
        """
        element = element_type(type)
        sizes = static_shape(shape)
        start = operator.index(offset)
        return self.router.tensor(
            make_source(source), start, sizes, element, route=route, tensor_type=tensor_type, allow_copy=allow_copy
        )

    def bind(
        self,
        request: ov.InferRequest,
        inputs: Mapping[Any, Any] | None = None,
        outputs: Mapping[Any, Any] | None = None,
        *,
        allow_copy: bool = False,
        restore: bool = True,
    ) -> Binding:
        """Puts a request's inputs and outputs into memory, all of them or none; returns a `Binding` that must be kept.

        Keys are tensor names (or ports of the compiled model), values a l0py.Memory, a `Shared`, an fd, an array of
        the port's shape and type, or a Tensor that `remote_tensor` made. Memory and what is behind an fd may be larger
        than the port's tensor, which begins at its first byte. `allow_copy=True` takes arrays that the plugin copies.

        When the binding ends, the request gets back the tensors that it had; to keep those meanwhile costs their
        memory, which `restore=False` saves: the request then gets new ones.

        Raises `UnknownTensor`, `TensorMismatch`, BufferError for a tensor that is bound already, and what
        `remote_tensor` raises; the request is then as it was.
        """
        return Binding(
            self,
            request,
            {} if inputs is None else inputs,
            {} if outputs is None else outputs,
            allow_copy=allow_copy,
            restore=restore,
        )

    def host_tensor(self, shape: tuple[int, ...], type_: ov.Type) -> ov.Tensor:
        """A new tensor of OpenVINO's own, which the NPU and the host see (for `Binding`)."""
        import openvino as ov

        return self.remote_context.create_host_tensor(type_, ov.Shape(list(shape)))

    def ring(self, compiled: ov.CompiledModel, context: l0py.Context, slots: int = 3) -> Ring:
        """So many requests of a model, each bound to memory of its own in `context`: see `Ring`.

        Raises what `bind` and `l0py.Context.alloc_host` raise; nothing is left behind then.
        """
        return Ring(self, compiled, context, slots)

    def was_copied(self, request: ov.InferRequest, name: str) -> verdict.Verdict:
        """See `ovadapter.was_copied`."""
        return verdict.was_copied(request, name)

    def __repr__(self) -> str:
        kind = "software" if self.device.driver.is_software else "hardware"
        return f"<ovadapter.NpuContext {self.device.name!r} ({kind}) at {self.l0_context:#x}>"
