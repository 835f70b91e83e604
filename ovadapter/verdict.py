"""Was it copied? An answer that can be printed and asserted, and the rule that decided it."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from l0py import softdriver
from l0py.errors import InUse

from . import routes, rules
from .errors import VerdictUnknown
from .ports import Port, Ports, devices_of
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
    """A tensor of a request as far as it is known. `address` is None when OpenVINO does not tell it.

    `dynamic` says that the model leaves its shape open.
    """

    route: str
    address: int | None
    size: int
    dynamic: bool = False


class _Binding(Protocol):
    """What a verdict asks of a binding."""

    request: Any
    mark: int
    ran: bool

    def placed(self) -> dict[int, Placed]: ...


# By id. Read through valuerefs(), a list made at once: the garbage collector may close a Binding, which takes its entry
# out, wherever Python code runs. For the same reason the lock is one that a thread may take again.
_bindings: weakref.WeakValueDictionary[int, _Binding] = weakref.WeakValueDictionary()
_lock = threading.RLock()
#: By request: its last binding's end, as an execution's number.
_ended: weakref.WeakKeyDictionary[ov.InferRequest, int] = weakref.WeakKeyDictionary()


def note_binding(binding: _Binding) -> None:
    """Remembers where a binding puts its tensors, as long as it lives (for Binding alone).

    Raises BufferError when another one has a port of the same request.
    """
    mine = binding.placed().keys()
    with _lock:
        if any(mine & other.placed().keys() for other in _all_bindings() if other.request is binding.request):
            raise InUse("a tensor of it is bound by another binding of this request: close that first")
        _bindings[id(binding)] = binding


def forget_binding(number: int) -> None:
    """The opposite, by the binding's id (for Binding alone)."""
    with _lock:
        _bindings.pop(number, None)


def note_end(request: ov.InferRequest) -> None:
    """Remembers that a request has its former tensors again, on which nothing ran up to now (for Binding alone)."""
    with _lock:
        _ended[request] = execution_mark()


def _all_bindings() -> list[_Binding]:
    with _lock:
        return [binding for reference in _bindings.valuerefs() if (binding := reference()) is not None]


def was_copied(request: ov.InferRequest, name: str) -> Verdict:
    """Whether the last inference of a request copied one of its tensors, known by a tensor name.

    It must have run since its tensors were set: ask after the inference, and before the binding is closed, which gives
    the request its former tensors back. What Python copies before (`infer({...})` into a request's own tensor) is not
    seen.

    On the software driver its own record of the addresses that the graph ran on decides, on hardware the rules by which
    the plugin decides. A remote tensor that was set without `bind` hides its address: its verdict is unknown. A request
    is known by its Python object: indexing an AsyncInferQueue makes a new one each time, so keep those that were bound.
    Raises UnknownTensor.
    """
    ports = Ports(request)
    return verdict_on(request, ports, ports.find(name), name)


def verdict_on(request: ov.InferRequest, ports: Ports, port: Port, key: Any) -> Verdict:
    """`was_copied` for the port that was meant by a key: a name alone may mean an input and an output."""
    everyones = _all_bindings()
    bindings = [one for one in everyones if one.request is request]
    bound = {index: tensor for one in bindings for index, tensor in one.placed().items()}
    placed = [_current(request, one, bound.get(one.index)) for one in ports.all]
    mark = max((one.mark for one in bindings), default=_ended.get(request, 0))
    ran = bool(bindings) and all(one.ran for one in bindings)
    rivals = [(one.mark, list(one.placed().values())) for one in everyones if one.request is not request]
    tensor = placed[port.index]
    elsewhere = [device for device in devices_of(request) if not device.startswith("NPU")]
    if elsewhere:
        copied, rule, evidence = None, f"the request runs on {', '.join(elsewhere)}: these rules are the NPU's", "none"
    else:
        copied, rule, evidence = judge(tensor, placed, mark=mark, ran=ran, rivals=rivals)
    name = key if isinstance(key, str) else port.label
    return Verdict(name, copied, rule, tensor.route, evidence, tensor.address)


def judge(
    tensor: Placed,
    request: Sequence[Placed],
    *,
    mark: int,
    ran: bool,
    rivals: Sequence[tuple[int, Sequence[Placed]]] = (),
) -> tuple[bool | None, str, str]:
    """Whether one of a request's tensors was copied, the rule and the evidence.

    `mark` is the number of the first execution that they can have been in, `ran` says that there was one. `rivals` are
    the marks and tensors of other requests.
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
    candidates = _last_executions(executions, [_Trace.of(one, router) for one in request], mark, rivals, router)
    answers = {not _Trace.of(tensor, router).is_in(execution) for execution in candidates}
    if len(answers) > 1:
        return None, "the last execution ran on a part of its tensors alone: it may be another request's", "none"
    if answers:
        copied = answers.pop()
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


def _current(request: ov.InferRequest, port: Port, bound: Placed | None) -> Placed:
    """Where a port's tensor lies: where it was bound, unless another one was visibly set since."""
    found = _placed(request, port)
    if bound is None:
        return found
    remote = bound.route in _REMOTE_RULES
    return bound if found.address is None or (not remote and found.address == bound.address) else found


def _placed(request: ov.InferRequest, port: Port) -> Placed:
    tensor = request.get_tensor(port.output)
    try:
        address = int(tensor.data.ctypes.data)
    except (NotImplementedError, RuntimeError, TypeError):  # a remote tensor, or a type that NumPy does not have
        return Placed("remote tensor", None, 0)
    return Placed("plain tensor", address, int(tensor.get_byte_size()), port.output.get_partial_shape().is_dynamic)


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


def _last_executions(
    executions: Sequence[dict[str, Any]],
    request: Sequence[_Trace],
    mark: int,
    rivals: Sequence[tuple[int, Sequence[Placed]]],
    router: routes.Router,
) -> list[dict[str, Any]]:
    """What can be the request's newest execution, not older than number `mark`: one, if all is well.

    Others run in between, on other memory or partly on the same. An execution that ran on more tensors of a rival is
    the rival's, and one of another graph than an older one that ran on all of the same tensors and on more of them is
    somebody's. Any other older one that ran on more of them, or on others, is as likely to be the request's. Addresses
    alone, which are used again, count only where there is nothing better.
    """
    others = [(since, [_Trace.of(one, router) for one in placed]) for since, placed in rivals]
    found: list[tuple[dict[str, Any], set[int]]] = []
    by_address: list[dict[str, Any]] = []
    for execution in reversed(executions):
        if execution["number"] < mark or len(execution["arguments"]) < len(request):
            continue
        matches = {index for index, trace in enumerate(request) if trace.is_in(execution)}
        if not matches or _is_of(execution, others, len(matches)):
            continue
        certain = {index for index in matches if request[index].memory}
        if not certain:
            by_address.append(execution)
        elif not any(certain <= seen for _, seen in found):
            found.append((execution, certain))
    if not found:
        return by_address[:1]
    return [
        execution
        for execution, matches in found
        if not any(matches < more and one["graph"] != execution["graph"] for one, more in found)
    ]


def _is_of(execution: dict[str, Any], others: Sequence[tuple[int, Sequence[_Trace]]], matches: int) -> bool:
    """Whether it ran on more than so many tensors of one of the others."""
    return any(
        execution["number"] >= since and sum(trace.is_in(execution) for trace in traces) > matches
        for since, traces in others
    )


def _by_rules(tensor: Placed, router: routes.Router) -> tuple[bool | None, str]:
    """What the plugin does with such memory, and the rule; None where the rules leave it open."""
    assert tensor.address is not None
    if not router.features.mutable_lists:
        return True, rules.MUTABLE_MISSING
    if tensor.dynamic:
        return None, rules.SHAPE_TENSOR
    if tensor.route in _REMOTE_RULES:
        return False, _REMOTE_RULES[tensor.route]
    if router.imported(tensor.address, tensor.size):
        return False, rules.KEEPER
    if router.memory_id(tensor.address):
        return None, rules.OWN_CONTEXT
    if tensor.address % PAGE or tensor.size % PAGE:
        return True, rules.UNALIGNED
    return (None, rules.ALIGNED) if router.features.import_address else (True, rules.IMPORT_MISSING)


_REMOTE_RULES = {"SHARED_BUF": rules.SHARED_BUF, "CPU_VA": rules.CPU_VA}


def _explain(copied: bool, expected: bool | None, rule: str) -> str:
    """The rule behind what the record shows; against the rules, what happened."""
    if expected is None or expected == copied:
        return rule
    return f"against the rule that {rule}, the plugin ran on " + ("a buffer of its own" if copied else "it")
