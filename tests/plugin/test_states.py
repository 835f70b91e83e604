"""Stateful models: the plugin keeps the states, and each is an input and an output of the driver's graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops
from plugin_helpers import on_cpu, parameter, refusal, zero_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plugin_helpers import OnNpu


def accumulator() -> ov.Model:
    """The sum of all x so far."""
    x = parameter([2, 3])
    total = ops.add(x, zero_state("total", [2, 3]))
    return ov.Model([ops.result(total)], [ops.assign(total, "total")], [x], "accumulator")


def computed_from_both() -> ov.Model:
    """The output needs the state before and after, and is neither."""
    x = parameter([2, 3])
    before = zero_state("total", [2, 3])
    after = ops.add(x, before)
    output = ops.multiply(ops.sigmoid(after), before)
    return ov.Model([ops.result(output)], [ops.assign(after, "total")], [x], "both")


def two_states() -> ov.Model:
    """Two states of different shapes, assigned in another order than read."""
    x = parameter([2, 3])
    steps, total = zero_state("steps", [4]), zero_state("total", [2, 3])
    more, sums = ops.add(steps, ops.constant(np.float32(1))), ops.add(x, total)
    sinks = [ops.assign(sums, "total"), ops.assign(more, "steps")]
    return ov.Model([ops.result(more), ops.result(sums)], sinks, [x], "two")


def recurrent() -> ov.Model:
    """A small recurrent cell with weights, whose states feed each other."""
    random = np.random.default_rng(3)
    x = parameter([1, 3])
    hidden, cell = zero_state("hidden", [1, 4]), zero_state("cell", [1, 4])
    weights = ops.constant(random.standard_normal((3, 4)).astype(np.float32))
    gate = ops.sigmoid(ops.add(ops.matmul(x, weights, False, False), hidden))
    new_cell = ops.add(ops.multiply(cell, gate), gate)
    new_hidden = ops.multiply(gate, ops.tanh(new_cell))
    sinks = [ops.assign(new_hidden, "hidden"), ops.assign(new_cell, "cell")]
    return ov.Model([ops.result(new_hidden)], sinks, [x], "recurrent")


MODELS = [accumulator, computed_from_both, two_states, recurrent]


def inputs(request: ov.InferRequest, count: int, seed: int = 0) -> Iterator[Any]:
    random, shape = np.random.default_rng(seed), request.get_input_tensor().shape
    return (random.standard_normal(shape).astype(np.float32) for _ in range(count))


def states(request: ov.InferRequest) -> dict[str, bytes]:
    return {state.name: state.state.data.tobytes() for state in request.query_state()}


def outputs(request: ov.InferRequest, x: Any) -> list[bytes]:
    return [np.array(value).tobytes() for value in request.infer({0: x}).values()]


def step(pair: tuple[ov.InferRequest, ov.InferRequest], count: int, seed: int = 0) -> None:
    """Infers over the same inputs on both; outputs and states must be equal after each."""
    cpu, npu = pair
    for x in inputs(cpu, count, seed):
        assert outputs(npu, x) == outputs(cpu, x)
        assert states(npu) == states(cpu)


@pytest.fixture(params=MODELS, ids=lambda make: make.__name__)
def pair(core: ov.Core, on_npu: OnNpu, request: pytest.FixtureRequest) -> tuple[ov.InferRequest, ov.InferRequest]:
    """A request of the CPU plugin and one of the NPU's for the same model."""
    model = request.param()
    return on_cpu(core, model).create_infer_request(), on_npu(model).create_infer_request()


def test_states_go_on(pair: tuple[ov.InferRequest, ov.InferRequest]) -> None:
    step(pair, 4)
    assert any(any(data) for data in states(pair[1]).values())


def test_reset_all(pair: tuple[ov.InferRequest, ov.InferRequest]) -> None:
    step(pair, 2)
    for request in pair:
        request.reset_state()
    assert not any(any(data) for data in states(pair[1]).values())
    step(pair, 2, seed=1)


def test_reset_one(pair: tuple[ov.InferRequest, ov.InferRequest]) -> None:
    step(pair, 2)
    for request in pair:
        next(state for state in request.query_state() if state.name in ("total", "cell")).reset()
    step(pair, 2, seed=1)


@pytest.mark.parametrize("make", [accumulator, computed_from_both, recurrent])
def test_set(core: ov.Core, on_npu: OnNpu, make: Any) -> None:
    model = make()
    pair = on_cpu(core, model).create_infer_request(), on_npu(model).create_infer_request()
    step(pair, 2)
    for request in pair:
        for state in request.query_state():
            state.state = ov.Tensor(np.full(state.state.shape, 0.25, np.float32))
    step(pair, 2, seed=1)


def test_set_with_more_outputs_than_inputs(core: ov.Core) -> None:
    """A bug of the plugin, not the driver's: it looks an output up among as many places as there are inputs."""
    if not ov.get_version().startswith("2026.4.1"):
        pytest.skip("seen in OpenVINO 2026.4.1")
    request = core.compile_model(two_states(), "NPU").create_infer_request()
    x = np.ones((2, 3), np.float32)
    request.infer({0: x})
    for state in request.query_state():
        state.state = ov.Tensor(np.zeros(state.state.shape, np.float32))
    with pytest.raises(RuntimeError, match="_M_range_check"):
        request.infer({0: x})


def test_requests_have_states_of_their_own(core: ov.Core, on_npu: OnNpu) -> None:
    compiled = on_npu(accumulator())
    first, second = compiled.create_infer_request(), compiled.create_infer_request()
    x = np.ones((2, 3), np.float32)
    for times in (1, 2, 3):
        assert outputs(first, x) == [(times * x).tobytes()]
    assert outputs(second, x) == [x.tobytes()]
    assert states(first) == {"total": (3 * x).tobytes()}


def test_the_state_before_as_output(on_npu: OnNpu) -> None:
    x = parameter([2, 3])
    before = zero_state("last", [2, 3])
    model = ov.Model([ops.result(before), ops.result(ops.relu(x))], [ops.assign(x, "last")], [x], "delay")
    request = on_npu(model).create_infer_request()
    last = np.zeros((2, 3), np.float32)
    for now in inputs(request, 4):
        assert outputs(request, now) == [last.tobytes(), np.maximum(now, 0).tobytes()]
        last = now


def nonzero_start() -> ov.Model:
    x = parameter([2, 3])
    before = ops.read_value(ops.constant(np.ones((2, 3), np.float32)), "total", ov.Type.f32, [2, 3])
    after = ops.add(x, before)
    return ov.Model([ops.result(after)], [ops.assign(after, "total")], [x], "nonzero")


def in_a_loop() -> ov.Model:
    """The state lies in the body of a loop over the rows."""
    x = parameter([2, 3])
    row = parameter([1, 3], name="row")
    total = ops.add(row, zero_state("total", [1, 3]))
    body_result = ops.result(total)
    body = ov.Model([body_result], [ops.assign(total, "total")], [row], "body")
    loop = ops.tensor_iterator()
    loop.set_friendly_name("rows")
    loop.set_body(body)
    loop.set_sliced_input(row, x.output(0), 0, 1, 1, -1, 0)
    output = loop.get_concatenated_slices(body_result.output(0), 0, 1, 1, -1, 0)
    return ov.Model([ops.result(output)], [x], "loop")


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (nonzero_start, "state 'total' has a first value other than zero, but the NPU plugin begins every state with"),
        (in_a_loop, "'rows' keeps a state inside its body, which no argument can carry"),
    ],
)
def test_refused(core: ov.Core, make: Any, told: str) -> None:
    with pytest.raises(RuntimeError) as error:
        core.compile_model(make(), "NPU")
    assert told in refusal(error)
