"""A ring of requests with memory of their own: one is filled while others run."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import l0py
from l0py.errors import Closed

from .errors import TensorMismatch
from .ports import Ports
from .tensor import byte_size, element_type, static_shape

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import openvino as ov

    from .binding import Binding
    from .context import NpuContext

__all__ = ["Ring", "Slot"]


class Slot:
    """One request of a ring and the memory of its inputs and outputs: `memory` by tensor name."""

    def __init__(self, binding: Binding, memory: dict[str, l0py.Memory]) -> None:
        self.binding = binding
        self.memory = memory
        self.started = False

    @property
    def request(self) -> ov.InferRequest:
        """The request."""
        return self.binding.request

    def numpy(self, name: str) -> np.ndarray[Any, Any]:
        """A tensor's data as an array, without a copy. It belongs to the request between `start()` and `wait()`."""
        return self.binding.numpy(name)

    def start(self) -> None:
        """Starts the request; returns at once."""
        self.binding.start_async()
        self.started = True

    def wait(self) -> None:
        """Waits until the request has run; returns at once when it was not started. Raises what OpenVINO raises."""
        if self.started:
            try:
                self.binding.wait()
            except RuntimeError:
                self.started = False  # it has ended, and may be started again
                raise


class Ring:
    """Slots that take turns. Made by `NpuContext.ring`; a context manager.

    `next()` gives the slot whose turn it is and waits until it is idle: read its last results if it was `started`, fill
    its inputs, `start()` it. `drain()` gives those that are still out, oldest first.
    """

    def __init__(self, npu: NpuContext, compiled: ov.CompiledModel, context: l0py.Context, slots: int) -> None:
        if not hasattr(compiled, "create_infer_request"):
            raise TypeError(f"a ring is made for an openvino.CompiledModel, not for {type(compiled).__name__}")
        if not isinstance(context, l0py.Context):
            raise TypeError(f"a ring's memory comes from a l0py.Context, not from {type(context).__name__}")
        if slots < 1:
            raise TensorMismatch(f"a ring of {slots} slots: it needs one at least")
        self._turn = 0
        self._slots: list[Slot] = []
        with ExitStack() as undo:
            for _ in range(slots):
                self._slots.append(_slot(npu, compiled, context, undo))
            self._own = undo.pop_all()

    def next(self) -> Slot:
        """The slot whose turn it is, once it is idle. Raises what OpenVINO raises for the inference that it ran."""
        if not self._slots:
            raise Closed("the ring is closed")
        slot = self._slots[self._turn]
        self._turn = (self._turn + 1) % len(self._slots)
        slot.wait()
        return slot

    def drain(self) -> Iterator[Slot]:
        """Each slot that was started, oldest first, once it has run; it then counts as not started."""
        for _ in self._slots:
            slot = self.next()
            if slot.started:
                yield slot
                slot.started = False

    def close(self) -> None:
        """Waits for all requests and frees their memory; runs once.

        Raises BufferError while arrays over it live: what they lie in is freed with the last of them.
        """
        self._slots = []
        self._own.close()

    def __len__(self) -> int:
        return len(self._slots)

    def __enter__(self) -> Ring:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def _slot(npu: NpuContext, compiled: ov.CompiledModel, context: l0py.Context, undo: ExitStack) -> Slot:
    request = compiled.create_infer_request()
    memory: dict[str, l0py.Memory] = {}
    sides: dict[str, dict[str, l0py.Memory]] = {"input": {}, "output": {}}
    for port in Ports(request).all:
        shape = static_shape(port.output.get_partial_shape().to_shape())
        size = byte_size(shape, element_type(port.output.get_element_type()))
        memory[port.label] = sides[port.side][port.label] = undo.enter_context(
            context.alloc_host(size, exportable=True)
        )
    binding = npu.bind(request, sides["input"], sides["output"], restore=False)
    undo.callback(binding.close)
    return Slot(binding, memory)
