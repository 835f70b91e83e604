"""Inputs and outputs of a request bound to memory: all or nothing, and undone when the binding ends."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from l0py.errors import Closed

from . import verdict
from .errors import CopyRequired, ImportRefused, TensorMismatch, UnknownTensor
from .ports import Port, Ports, devices_of
from .source import Source, make_source
from .tensor import Tensor, element_type, reason, static_shape
from .verdict import Placed, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import openvino as ov

    class Maker(Protocol):
        """A plugin as a binding sees it: an NpuContext, a CpuContext or a GpuContext.

        `unnamed_route` is the one whose tensors go to ports without a name of their own; None where all routes' do.
        """

        device_name: str
        unnamed_route: str | None

        def remote_tensor(
            self,
            source: Any,
            shape: tuple[int, ...],
            type: ov.Type,  # noqa: A002 - OpenVINO's own name for it
            *,
            route: str | None,
            tensor_type: str,
            allow_copy: bool,
        ) -> Tensor: ...

        def host_tensor(self, shape: tuple[int, ...], type_: ov.Type) -> ov.Tensor: ...


__all__ = ["Binding"]

_process = os.getpid()  # to ask for it at each inference would cost more than the rest of the check


def _after_fork_in_child() -> None:
    global _process
    _process = os.getpid()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_after_fork_in_child)


class Binding:
    """A request whose tensors lie in memory. Made by a context's `bind`; a context manager that undoes it.

    It must be kept as long as the request runs on the memory: it keeps the memory alive, which cannot be closed
    meanwhile (BufferError).
    """

    def __init__(
        self,
        maker: Maker,
        request: ov.InferRequest,
        inputs: Mapping[Any, Any],
        outputs: Mapping[Any, Any],
        *,
        allow_copy: bool,
        restore: bool,
    ) -> None:
        self._closed = True  # until everything is in its place
        self.request = request
        self.ran = False
        self._started = False
        self._process = _process
        self._maker = maker
        self._restores = restore
        self._closing = threading.RLock()
        self._ports = Ports(request)
        _require_device(request, maker.device_name)
        with ExitStack() as undo:
            self._bound = self._find_tensors(inputs, outputs, allow_copy=allow_copy, undo=undo)
            _refuse_overlaps(self._bound)
            self.mark = verdict.execution_mark()
            verdict.note_binding(self)
            undo.callback(verdict.forget_binding, id(self))  # not self, whose refcount must end with the last user's
            self._previous = self._set_all(list(self._bound.values()))
            self._own = undo.pop_all()
        self._closed = False

    def _find_tensors(
        self, inputs: Mapping[Any, Any], outputs: Mapping[Any, Any], *, allow_copy: bool, undo: ExitStack
    ) -> dict[Any, tuple[Port, Tensor]]:
        """Ports and tensors by key, acquired; `undo` lets go of them."""
        bound: dict[Any, tuple[Port, Tensor]] = {}
        for side, sources in (("input", inputs), ("output", outputs)):
            if not isinstance(sources, Mapping):
                raise TypeError(f"{side}s are a mapping of tensor names to memory, not {type(sources).__name__}")
            for key, source in sources.items():
                port = self._ports.find(key, side)
                if key in bound:
                    raise TensorMismatch(
                        f"{key!r} is an input and an output: give ports of the compiled model as keys, not that name"
                    )
                if any(port.index == other.index for other, _ in bound.values()):
                    raise TensorMismatch(f"{key!r} is another name of a tensor that is bound already")
                tensor = tensor_for(self._maker, port, source, allow_copy=allow_copy, undo=undo)
                tensor.acquire()
                undo.callback(tensor.release)
                bound[key] = port, tensor
        return bound

    def _set_all(self, bound: list[tuple[Port, Tensor]]) -> list[tuple[Port, ov.Tensor | None]]:
        """Sets the tensors in the request; returns what was there. A failure puts it back."""
        previous: list[tuple[Port, ov.Tensor | None]] = []
        try:
            for port, tensor in bound:
                # A request has no tensors of its own until it is asked for them: asking costs their memory.
                previous.append((port, self.request.get_tensor(port.output) if self._restores else None))
                if tensor.remote is not None:
                    self.request.set_tensor(port.name, tensor.remote)
                else:
                    self.request.set_tensor(port.output, tensor.plain)
        except RuntimeError as error:
            self._put_back(previous)
            raise ImportRefused(f"OpenVINO does not take the memory for {port.label!r}: {reason(error)}") from error
        except BaseException:  # KeyboardInterrupt above all: the memory goes, so the request must not keep it
            self._put_back(previous)
            raise
        return previous

    def _put_back(self, previous: list[tuple[Port, ov.Tensor | None]]) -> None:
        for port, tensor in reversed(previous):
            if tensor is None:
                tensor = self._maker.host_tensor(tuple(port.output.get_shape()), port.output.get_element_type())
            self.request.set_tensor(port.output, tensor)

    @property
    def tensors(self) -> dict[Any, Tensor]:
        """The bound tensors, by the keys that were given."""
        return {key: tensor for key, (_, tensor) in self._bound.items()}

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def infer(self) -> None:
        """Runs the request and waits; results are in the bound memory. Raises what OpenVINO raises."""
        # InferRequest.infer() would raise after running when an output is a remote tensor.
        self.start_async()
        self._wait()

    def start_async(self) -> None:
        """Starts the request; the memory belongs to it until `wait()` returns.

        A request of an AsyncInferQueue is started by its queue instead.
        """
        self._require_open()
        self.request.start_async()
        self._started = True

    def wait(self) -> None:
        """Waits until the request has run. Raises what OpenVINO raises."""
        self._require_open()
        self._wait()

    def _wait(self) -> None:
        try:
            self.request.wait()
        except RuntimeError:
            self.ran = self._started = False
            self.mark = verdict.execution_mark()  # it has no execution, and an older one is not meant
            raise
        self.ran = self._started

    def numpy(self, key: Any) -> np.ndarray[Any, Any]:
        """A bound tensor's data as an array, without a copy."""
        return self._find(key)[1].numpy()

    def verdict(self, key: Any) -> Verdict:
        """Whether the last inference copied the tensor: `ovadapter.was_copied` for this binding."""
        self._require_open()
        return verdict.verdict_on(self.request, self._ports, self._find(key)[0], key)

    def verdicts(self) -> dict[Any, Verdict]:
        """The verdict over every bound tensor."""
        return {key: self.verdict(key) for key in self._bound}

    def placed(self) -> dict[int, Placed]:
        """Where the bound tensors lie, by the index of their ports."""
        return {port.index: Placed(tensor.route, tensor.address, tensor.size) for port, tensor in self._bound.values()}

    def close(self) -> None:
        """Waits for the request, puts back what it had before and lets go of the memory. Runs once.

        When OpenVINO does not take the former tensors back, it raises what OpenVINO raises and stays bound. In a child
        of a fork it does nothing: the request is the parent's, and OpenVINO's threads are not there.
        """
        if self._closed or self._process != _process:
            self._closed = True
            return
        with self._closing:  # threads that come second wait until it is done
            if self._closed:
                return
            with suppress(RuntimeError):  # an inference that failed has ended, too
                self.request.wait()
            self._put_back(self._previous)
            verdict.note_end(self.request)
            self._closed = True
            self._own.close()

    def _find(self, key: Any) -> tuple[Port, Tensor]:
        if key in self._bound:
            return self._bound[key]
        index = self._ports.find(key).index  # another name of it, perhaps
        for port, tensor in self._bound.values():
            if port.index == index:
                return port, tensor
        raise UnknownTensor(f"{key!r} is not bound; bound are {', '.join(map(repr, self._bound)) or 'none'}")

    def _require_open(self) -> None:
        if self._closed:
            raise Closed("the binding is closed: the request is no longer in its memory")
        if self._process != _process:
            raise Closed("the binding was made before a fork and belongs to the parent process")

    def __enter__(self) -> Binding:
        self._require_open()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and not sys.is_finalizing() and self._process == _process:
            warnings.warn(
                f"{self!r} was not kept: its request is unbound now", ResourceWarning, source=self, stacklevel=2
            )
            self.close()

    def __reduce__(self) -> str:
        raise TypeError("a Binding cannot be copied or pickled: a copy would unbind the request of the first")

    def __repr__(self) -> str:
        state = " (closed)" if self._closed else ""
        return f"<ovadapter.Binding of {', '.join(map(str, self._bound)) or 'nothing'}{state}>"


def _require_device(request: ov.InferRequest, name: str) -> None:
    devices = devices_of(request)
    if any(not device.startswith(name) for device in devices):
        raise TensorMismatch(
            f"the request runs on {', '.join(devices)}, not on the {name} alone: it cannot use the {name}'s tensors"
        )


def tensor_for(maker: Maker, port: Port, source: Any, *, allow_copy: bool, undo: ExitStack) -> Tensor:
    """The tensor for a port: one that was made before, if it fits, or a new one that `undo` closes."""
    shape, type_ = _static(port)
    if isinstance(source, Tensor):
        source.require_open()
        _require_same(port, shape, type_, source.shape, source.element_type)
        if source.route == "copy" and not allow_copy:
            raise CopyRequired(f"{source!r} is copied", "Give it other memory, or say allow_copy=True here, too")
        tensor = source
    else:
        with _naming(port):
            found = make_source(source)
        _check_array(port, shape, type_, found)
        with _naming(port):
            tensor = maker.remote_tensor(
                found,
                shape,
                type_,
                route=maker.unnamed_route if port.name is None else None,
                tensor_type="INPUT" if port.side == "input" and not found.writable else "BINDED",
                allow_copy=allow_copy,
            )
        undo.callback(tensor.close)
    if tensor.remote is not None and port.name is None:
        way_out = f": make it with route={maker.unnamed_route!r}" if maker.unnamed_route else ""
        raise TensorMismatch(
            f"{port.label} has no name of its own, by which OpenVINO would take a remote tensor{way_out}"
        )
    if port.side == "output" and not tensor.writable:
        raise TensorMismatch(f"{port.label!r} is an output, but its memory is read-only")
    return tensor


@contextmanager
def _naming(port: Port) -> Iterator[None]:
    """What this package raises about memory names the port that it was given for."""
    try:
        yield
    except CopyRequired as error:
        raise CopyRequired(f"{port.label!r}: {error.rule}", error.way_out) from error
    except (ImportRefused, TensorMismatch) as error:
        raise type(error)(f"{port.label!r}: {error}") from error


def _static(port: Port) -> tuple[tuple[int, ...], ov.Type]:
    shape = port.output.get_partial_shape()
    if shape.is_dynamic:
        raise TensorMismatch(
            f"{port.label!r} has the dynamic shape {shape}: memory is bound to static shapes only. "
            "Give the model one with reshape() before it is compiled"
        )
    return static_shape(port.output.get_shape()), element_type(port.output.get_element_type())


def _check_array(port: Port, shape: tuple[int, ...], type_: ov.Type, source: Source) -> None:
    """An array must be what the port is; one of single bytes in one dimension is taken for raw memory."""
    if source.array is None:
        return
    given, format_ = source.array
    if len(given) == 1 and format_ == "|u1":
        return
    try:
        _require_same(port, shape, type_, given, element_type(format_))
    except TensorMismatch:
        source.release()
        raise


def _require_same(
    port: Port, shape: tuple[int, ...], type_: ov.Type, given: tuple[int, ...], given_type: ov.Type
) -> None:
    if (shape, type_) != (given, given_type):
        raise TensorMismatch(
            f"{port.label!r} takes {type_.get_type_name()} {list(shape)}, "
            f"the memory given for it is {given_type.get_type_name()} {list(given)}"
        )


def _refuse_overlaps(bound: Mapping[Any, tuple[Port, Tensor]]) -> None:
    """An output must share no byte with anything else: the device writes it while it reads the inputs."""
    everything = list(bound.values())
    for port, tensor in everything:
        for other_port, other in everything:
            if port.side == "output" and port.index != other_port.index and tensor.overlaps(other):
                raise TensorMismatch(f"the memory of {port.label!r} overlaps that of {other_port.label!r}")
