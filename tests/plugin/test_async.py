"""Many requests, many models, many threads: each gets its own results."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops
from plugin_helpers import conv_model, infer, on_cpu, parameter, random_inputs, relu_model, slow_model, value_of

from l0py import softdriver


def cpu_results(core: ov.Core, model: ov.Model, count: int) -> tuple[list[Any], list[Any]]:
    """Inputs, and what the CPU plugin makes of each."""
    compiled = on_cpu(core, model)
    inputs = [random_inputs(model, seed) for seed in range(count)]
    return inputs, [infer(compiled, given) for given in inputs]


def test_queue_gives_each_its_own_results(core: ov.Core) -> None:
    model = conv_model()
    inputs, wanted = cpu_results(core, model, 20)
    found: dict[int, Any] = {}

    def keep(request: ov.InferRequest, number: int) -> None:
        found[number] = [value_of(request.get_output_tensor(index)) for index in range(len(model.outputs))]

    queue = ov.AsyncInferQueue(core.compile_model(model, "NPU"), 4)
    queue.set_callback(keep)
    softdriver.reset_record()
    for number in range(200):
        queue.start_async({0: inputs[number % 20][0]}, number)
    queue.wait_all()
    assert sorted(found) == list(range(200))
    assert all(found[number] == wanted[number % 20] for number in found)
    assert softdriver.record()["executed"] == 200
    # Each request has outputs of its own. An input is the caller's array where that happens to lie on page boundaries.
    places = {tuple(execution["arguments"][len(model.inputs) :]) for execution in softdriver.executions()}
    assert 2 <= len(places) <= 4


def test_queue_keeps_several_in_flight(core: ov.Core) -> None:
    model = slow_model()
    (given,), (wanted,) = cpu_results(core, model, 1)
    lock, finished, wrong = threading.Lock(), [], []

    def count(request: ov.InferRequest, number: int) -> None:
        right = [value_of(request.get_output_tensor())] == wanted
        with lock:
            finished.append(number)
            if not right:
                wrong.append(number)

    queue = ov.AsyncInferQueue(core.compile_model(model, "NPU"), 4)
    queue.set_callback(count)
    in_flight = []
    for number in range(8):
        queue.start_async({0: given[0]}, number)
        with lock:
            in_flight.append(number + 1 - len(finished))
    queue.wait_all()
    assert sorted(finished) == list(range(8))
    assert not wrong
    assert max(in_flight) >= 2


def test_start_does_not_wait(core: ov.Core) -> None:
    """Four requests are started before the first has ended, and end in any order of asking."""
    model = slow_model()
    inputs, wanted = cpu_results(core, model, 4)
    compiled = core.compile_model(model, "NPU")
    requests = [compiled.create_infer_request() for _ in inputs]
    for request, given in zip(requests, inputs, strict=True):
        request.set_input_tensor(given[0])
        request.start_async()
    pending = [not request.wait_for(0) for request in requests]
    for request, right in reversed(list(zip(requests, wanted, strict=True))):
        request.wait()
        assert [value_of(request.get_output_tensor())] == right
    assert sum(pending) >= 2


def test_busy_request(core: ov.Core) -> None:
    model = slow_model()
    request = core.compile_model(model, "NPU").create_infer_request()
    request.start_async()
    with pytest.raises(RuntimeError, match="Infer Request is busy"):
        request.start_async()
    request.wait()


def test_a_failure_belongs_to_its_request(core: ov.Core) -> None:
    model = relu_model()
    inputs = random_inputs(model)
    wanted = infer(on_cpu(core, model), inputs)
    compiled = core.compile_model(model, "NPU")
    requests = [compiled.create_infer_request() for _ in range(3)]
    for request in requests:
        request.set_input_tensor(inputs[0])
        request.infer()
    softdriver.inject("zeCommandQueueExecuteCommandLists", after=1, result="ZE_RESULT_ERROR_DEVICE_LOST")
    failed = []
    for number, request in enumerate(requests):
        request.get_output_tensor().data[:] = -1
        request.start_async()
        try:
            request.wait()
        except RuntimeError as error:
            assert "ZE_RESULT_ERROR_DEVICE_LOST" in str(error)  # noqa: PT017 - which of them fails is the point
            failed.append(number)
        else:
            assert [value_of(request.get_output_tensor())] == wanted
    assert failed == [1]
    requests[1].infer()
    assert [value_of(requests[1].get_output_tensor())] == wanted


def test_models_side_by_side(core: ov.Core) -> None:
    """Compiled models do not mix their graphs, queues and memory."""
    models = []
    for number in range(6):
        x = parameter([number + 1, 64])
        models.append(ov.Model([ops.result(ops.add(x, ops.constant(np.float32(number))))], [x], f"add {number}"))
    inputs = [random_inputs(model, 5) for model in models]
    wanted = [infer(on_cpu(core, model), given) for model, given in zip(models, inputs, strict=True)]
    requests = [core.compile_model(model, "NPU").create_infer_request() for model in models]
    for _ in range(10):
        for request, given in zip(requests, inputs, strict=True):
            request.set_input_tensor(given[0])
            request.start_async()
        for request, right in zip(requests, wanted, strict=True):
            request.wait()
            assert [value_of(request.get_output_tensor())] == right


def test_threads_that_compile_and_infer(core: ov.Core) -> None:
    model = conv_model()
    inputs, wanted = cpu_results(core, model, 4)

    def work(number: int) -> bool:
        return infer(core.compile_model(model, "NPU"), inputs[number % 4]) == wanted[number % 4]

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(16)))


def test_threads_with_one_compiled_model(core: ov.Core) -> None:
    model = conv_model()
    inputs, wanted = cpu_results(core, model, 4)
    compiled = core.compile_model(model, "NPU")

    def work(number: int) -> bool:
        return all(infer(compiled, inputs[number]) == wanted[number] for _ in range(10))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(4)))


def test_model_dropped_before_its_request(core: ov.Core) -> None:
    """A request keeps what it needs."""
    model = relu_model()
    inputs = random_inputs(model)
    compiled = core.compile_model(model, "NPU")
    request = compiled.create_infer_request()
    request.set_input_tensor(inputs[0])
    request.start_async()
    del compiled
    request.wait()
    assert [value_of(request.get_output_tensor())] == infer(on_cpu(core, model), inputs)


def test_memory_released_in_between(core: ov.Core) -> None:
    model = conv_model()
    inputs, wanted = cpu_results(core, model, 1)
    compiled = core.compile_model(model, "NPU")
    assert infer(compiled, inputs[0]) == wanted[0]
    compiled.release_memory()
    assert infer(compiled, inputs[0]) == wanted[0]
