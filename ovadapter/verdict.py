"""Was it copied? An answer that can be printed and asserted, and the rule that decided it."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from l0py import softdriver

from . import routes, rules
from .errors import VerdictUnknown
from .ports import Port, Ports
from .source import PAGE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import openvino as ov

__all__ = ["Placed", "Verdict", "judge", "was_copied"]


@dataclass(frozen=True)
class Verdict:
    """Whether the last inference of a request copied a tensor.

    `copied` is None when nobody can tell; then the verdict cannot be used as a truth value (`VerdictUnknown`). `route`
    is how the memory got in, `rule` why the answer is what it is, `evidence` where it comes from: `"driver record"`
    (the software driver wrote down the addresses that the graph ran on), `"rule table"`, or `"none"`. `address` is the
    tensor's, where it is known.
    """

    name: str
    copied: bool | None
    rule: str
    route: str
    evidence: str
    address: int | None

    def __bool__(self) -> bool:
        if self.copied is None:
            raise VerdictUnknown(f"{self}; compare .copied with True, False or None")
        return self.copied

    def __str__(self) -> str:
        answer = {True: "copied", False: "zero copy", None: "unknown"}[self.copied]
        where = "" if self.address is None else f" at {self.address:#x}"
        return f"{self.name}: {answer} ({self.route}{where}; {self.evidence}): {self.rule}"


@dataclass(frozen=True)
class Placed:
    """A tensor of a request as far as it is known. `address` is None when OpenVINO does not tell it."""

    route: str
    address: int | None
    size: int


class _Binding(Protocol):
    """What a verdict asks of a binding."""

    request: Any
    mark: int
    ran: bool

    def placed(self) -> dict[int, Placed]: ...


_bindings: weakref.WeakSet[_Binding] = weakref.WeakSet()
_lock = threading.Lock()


def note_binding(binding: _Binding) -> None:
    """Remembers where a binding put its tensors, as long as it lives (for Binding alone)."""
    with _lock:
        _bindings.add(binding)


def forget_binding(binding: _Binding) -> None:
    """The opposite (for Binding alone)."""
    with _lock:
        _bindings.discard(binding)


def _bindings_of(request: ov.InferRequest) -> list[_Binding]:
    with _lock:
        return [one for one in _bindings if one.request is request]


def bound_ports(request: ov.InferRequest) -> set[int]:
    """The indices of a request's ports that are bound."""
    return {index for one in _bindings_of(request) for index in one.placed()}


def was_copied(request: ov.InferRequest, name: str) -> Verdict:
    """Whether the last inference of a request copied one of its tensors, known by a tensor name.

    It must have run since its tensors were set: ask after the inference. On the software driver its own record of the
    addresses that the graph ran on decides, on hardware the rules by which the plugin decides. A remote tensor that was
    set without `bind` hides its address: its verdict is unknown. Raises UnknownTensor.
    """
    ports = Ports(request)
    index = ports.find(name).index
    bindings = _bindings_of(request)
    bound = {port: tensor for one in bindings for port, tensor in one.placed().items()}
    placed = [bound.get(port.index) or _placed(request, port) for port in ports.all]
    mark = max((one.mark for one in bindings), default=0)
    ran = bool(bindings) and all(one.ran for one in bindings)
    copied, rule, evidence = judge(placed[index], placed, mark=mark, ran=ran)
    return Verdict(name, copied, rule, placed[index].route, evidence, placed[index].address)


def judge(tensor: Placed, request: Sequence[Placed], *, mark: int, ran: bool) -> tuple[bool | None, str, str]:
    """Whether one of a request's tensors was copied, the rule and the evidence.

    `mark` is the number of the first execution that they can have been in, `ran` says that there was one.
    """
    router = routes.any_router()
    if router is None:
        return None, "no NpuContext is alive that could be asked", "none"
    if tensor.address is None:
        return None, "OpenVINO does not tell where a remote tensor lies that was set without ovadapter's bind()", "none"
    expected, rule = _by_rules(tensor, router)
    if not router.software:
        return expected, rule, "none" if expected is None else "rule table"
    executions = softdriver.executions()
    execution = _last_execution(executions, [_Trace.of(one, router) for one in request], mark)
    if execution is not None:
        copied = not _Trace.of(tensor, router).is_in(execution)
        return copied, _explain(copied, expected, rule), "driver record"
    if ran and executions and executions[0]["number"] <= mark:  # none is forgotten since
        return True, _explain(True, expected, rule), "driver record"
    if expected:
        return True, rule, "rule table"
    return None, "the driver's record has no execution of this request", "none"


def execution_mark() -> int:
    """The number that the software driver's next graph execution has at least; 0 on another driver."""
    router = routes.any_router()
    executions = softdriver.executions() if router is not None and router.software else []
    return executions[-1]["number"] + 1 if executions else 0


def _placed(request: ov.InferRequest, port: Port) -> Placed:
    tensor = request.get_tensor(port.output)
    try:
        address = int(tensor.data.ctypes.data)
    except (NotImplementedError, RuntimeError, TypeError):  # a remote tensor, or a type that NumPy does not have
        return Placed("remote tensor", None, 0)
    return Placed("plain tensor", address, int(tensor.get_byte_size()))


@dataclass(frozen=True)
class _Trace:
    """What a tensor leaves in the record of an execution that runs on it: addresses in its range, in its memory.

    Addresses are used again, the numbers of memory are not. Memory that is imported for each inference alone has
    none afterwards: then only the exact address counts.
    """

    address: int | None
    size: int
    memory: int

    @classmethod
    def of(cls, tensor: Placed, router: routes.Router) -> _Trace:
        memory = 0 if tensor.address is None else router.memory_id(tensor.address)
        return cls(tensor.address, tensor.size, memory)

    def is_in(self, execution: dict[str, Any]) -> bool:
        if self.address is None:
            return False
        if not self.memory:
            return self.address in execution["arguments"]
        # Within, not only at: of a batch that the plugin splits, each part has its own address.
        return any(
            memory == self.memory and self.address <= pointer < self.address + self.size
            for pointer, memory in zip(execution["arguments"], execution["memory"], strict=True)
        )


def _last_execution(
    executions: Sequence[dict[str, Any]], request: Sequence[_Trace], mark: int
) -> dict[str, Any] | None:
    """The request's newest execution, not older than number `mark`.

    Others run in between, on other memory or partly on the same: the request's is the one that ran on most of its
    tensors, and on one at least.
    """
    best, most = None, 0
    for execution in reversed(executions):
        if execution["number"] < mark or len(execution["arguments"]) < len(request):
            continue
        matches = sum(trace.is_in(execution) for trace in request)
        if matches > most:
            best, most = execution, matches
    return best


def _by_rules(tensor: Placed, router: routes.Router) -> tuple[bool | None, str]:
    """What the plugin does with such memory, and the rule; None where the rules leave it open."""
    assert tensor.address is not None
    if not router.features.mutable_lists:
        return True, rules.MUTABLE_MISSING
    if tensor.route in _REMOTE_RULES:
        return False, _REMOTE_RULES[tensor.route]
    if router.imported(tensor.address, tensor.size):
        return False, rules.KEEPER
    if router.memory_id(tensor.address):
        return None, rules.OWN_CONTEXT
    if tensor.address % PAGE == 0 and tensor.size % PAGE == 0 and router.features.import_address:
        return None, rules.ALIGNED
    return True, rules.UNALIGNED


_REMOTE_RULES = {"SHARED_BUF": rules.SHARED_BUF, "CPU_VA": rules.CPU_VA}


def _explain(copied: bool, expected: bool | None, rule: str) -> str:
    """The rule behind what the record shows; against the rules, what happened."""
    if expected is None or expected == copied:
        return rule
    return f"against the rule that {rule}, the plugin ran on " + ("a buffer of its own" if copied else "it")
