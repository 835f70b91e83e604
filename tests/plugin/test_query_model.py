"""Which layers the NPU takes, and models that are divided between it and the CPU."""

from __future__ import annotations

import openvino as ov
import pytest
from openvino import opset13 as ops
from plugin_helpers import conv_model, halving_model, infer, on_cpu, parameter, random_inputs

from l0py import softdriver


def executed() -> int:
    return int(softdriver.record()["executed"])


def test_all_layers(core: ov.Core) -> None:
    model = conv_model()
    assert core.query_model(model, "NPU") == {node.friendly_name: "NPU" for node in model.get_ops()}


def test_a_layer_that_nobody_else_knows(core: ov.Core) -> None:
    model = halving_model()
    wanted = {node.friendly_name for node in model.get_ops()} - {"middle"}
    assert core.query_model(model, "NPU") == dict.fromkeys(wanted, "NPU")


def test_names_with_brackets(core: ov.Core) -> None:
    """The driver's answer is one text with each name in angle brackets."""
    x = parameter([2, 3])
    model = ov.Model([ops.result(ops.sigmoid(ops.relu(x, name="a & 'b'"), name='"é"'))], [x], "names")
    assert core.query_model(model, "NPU") == {node.friendly_name: "NPU" for node in model.get_ops()}


@pytest.mark.parametrize("make", [conv_model, halving_model])
def test_hetero(core: ov.Core, make: object) -> None:
    """What the NPU takes runs there, the rest on the CPU, and together they give the CPU's results."""
    model = make()  # type: ignore[operator]
    inputs = random_inputs(model)
    wanted = infer(on_cpu(core, model), inputs)
    compiled = core.compile_model(model, "HETERO:NPU,CPU")
    before = executed()
    assert infer(compiled, inputs) == wanted
    parts = 1 if make is conv_model else 2  # before and after the layer that only the CPU has
    assert executed() == before + parts
    devices = compiled.get_property("EXECUTION_DEVICES")
    assert "NPU" in devices
    assert ("CPU" in devices) == (make is halving_model)
