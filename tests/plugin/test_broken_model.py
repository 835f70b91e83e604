"""Models that cannot be compiled: the reason comes through the driver's build log into the exception."""

from __future__ import annotations

import gc
from typing import Any

import openvino as ov
import pytest
from openvino import opset13 as ops
from plugin_helpers import halving_model, infer, on_cpu, parameter, random_inputs, refusal, relu_model, zero_state

from l0py import softdriver


def no_output() -> ov.Model:
    return ov.Model([], [parameter([1, 3])], "nothing")


def assigned_only() -> ov.Model:
    x = parameter([1, 3])
    model = ov.Model([ops.result(ops.relu(x))], [ops.assign(zero_state("s", [1, 3]), "s")], [x], "state")
    for node in model.get_ops():
        if node.get_type_name() == "ReadValue":
            node.output(0).replace(x.output(0))
    return model


BROKEN = [
    (halving_model, "Cannot create Halve layer middle"),
    (no_output, "the model has no output"),
    (assigned_only, "state 's' is assigned but never read"),
]


@pytest.mark.parametrize(("make", "told"), BROKEN)
def test_reason(core: ov.Core, make: Any, told: str) -> None:
    with pytest.raises(RuntimeError) as error:
        core.compile_model(make(), "NPU")
    text = refusal(error)
    assert "pfnCreate2 result: ZE_RESULT_ERROR_MODULE_BUILD_FAILURE" in text
    assert told in text


def test_the_log_is_of_the_last_model(core: ov.Core) -> None:
    """One reason does not stick to the next failure."""
    for make, told in BROKEN + BROKEN[:1]:
        with pytest.raises(RuntimeError) as error:
            core.compile_model(make(), "NPU")
        assert told in refusal(error)
        assert sum(other in refusal(error) for _, other in BROKEN) == 1


def test_nothing_stays_and_the_next_model_works(core: ov.Core) -> None:
    core.compile_model(relu_model(), "NPU")
    gc.collect()
    before = softdriver.record()
    for make, _ in BROKEN:
        with pytest.raises(RuntimeError):
            core.compile_model(make(), "NPU")
    after = softdriver.record()
    assert (after["objects"], after["memory"]["now"]) == (before["objects"], before["memory"]["now"])
    model = relu_model()
    inputs = random_inputs(model)
    assert infer(core.compile_model(model, "NPU"), inputs) == infer(on_cpu(core, model), inputs)


@pytest.mark.parametrize(
    "call",
    [
        "graph_pfnCreate2",
        "zeCommandQueueCreate",
        "zeCommandListCreate",
        "zeFenceCreate",
        "zeMemAllocHost",
        "graph_pfnSetArgumentValue",
        "graph_pfnAppendGraphExecute",
        "zeCommandListClose",
        "zeCommandQueueExecuteCommandLists",
        "zeFenceHostSynchronize",
    ],
)
def test_a_driver_that_fails(core: ov.Core, call: str) -> None:
    """An exception, nothing left behind, and the next one works.

    Left out is what the plugin does not look at (pfnGraphInitialize), or after which it forgets the graph that it has
    made (pfnGetProperties, pfnGetArgumentProperties3).
    """
    model = relu_model()
    core.compile_model(model, "NPU")
    gc.collect()
    before = softdriver.record()["objects"]
    softdriver.inject(call, result="ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY")
    with pytest.raises(RuntimeError, match="OUT_OF_DEVICE_MEMORY"):
        core.compile_model(model, "NPU").create_infer_request().infer()
    assert softdriver.record()["objects"] == before
    inputs = random_inputs(model)
    assert infer(core.compile_model(model, "NPU"), inputs) == infer(on_cpu(core, model), inputs)
