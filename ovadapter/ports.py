"""A request's inputs and outputs by tensor name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import UnknownTensor

if TYPE_CHECKING:
    import openvino as ov

__all__ = ["Port", "Ports", "devices_of"]


@dataclass(frozen=True)
class Port:
    """An input or output of a compiled model. `side` is `"input"` or `"output"`.

    `name` is a tensor name that no other port has, None when there is none: OpenVINO finds remote tensors by it.
    """

    index: int
    side: str
    output: ov.ConstOutput
    names: tuple[str, ...]
    name: str | None

    @property
    def label(self) -> str:
        """What it alone is called: `name`, or without one `"output 1"`, with its index among all ports."""
        return self.name or f"{self.side} {self.index}"

    def is_called(self, key: Any) -> bool:
        """Whether a key means it: a tensor name, its label, or a port of the compiled model."""
        if isinstance(key, str):
            return key == self.label or key in self.names
        return bool(key == self.output)


class Ports:
    """All ports of a request, inputs first. Raises TypeError for what is no request."""

    def __init__(self, request: ov.InferRequest) -> None:
        if not hasattr(request, "model_inputs"):
            raise TypeError(f"a request is an openvino.InferRequest, not {type(request).__name__}")
        sides = [("input", port) for port in request.model_inputs] + [
            ("output", port) for port in request.model_outputs
        ]
        names = [tuple(sorted(port.get_names())) for _, port in sides]
        often = [name for group in names for name in group]
        self.all = [
            Port(index, side, port, group, next((name for name in group if often.count(name) == 1), None))
            for index, ((side, port), group) in enumerate(zip(sides, names, strict=True))
        ]

    def find(self, key: Any, side: str | None = None) -> Port:
        """The port of a tensor name, or of a port of the compiled model; an input before an output of the same name.

        Raises UnknownTensor, which lists the names that there are.
        """
        candidates = [port for port in self.all if side in (None, port.side)]
        for port in candidates:
            if port.is_called(key):
                return port
        there = ", ".join(" = ".join(port.names) or port.label for port in candidates)
        raise UnknownTensor(f"the model has no {side or 'tensor'} {key!r}; it has {there or 'none'}")


def devices_of(request: ov.InferRequest) -> list[str]:
    """OpenVINO's names of the devices that a request runs on."""
    devices = request.get_compiled_model().get_property("EXECUTION_DEVICES")
    return [devices] if isinstance(devices, str) else list(devices)  # plugins differ in how they tell one device
