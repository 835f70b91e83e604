"""Ranks, numbers of inputs and outputs, and the ways in which outputs hang on inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops
from plugin_helpers import conv_model, infer, parameter, random_inputs, refusal, same_as_cpu

if TYPE_CHECKING:
    from plugin_helpers import OnNpu


@pytest.mark.parametrize("rank", range(6))
def test_rank(core: ov.Core, on_npu: OnNpu, rank: int) -> None:
    shape = [2, 3, 2, 1, 4][:rank]
    x, y = parameter(shape), parameter(shape, name="y")
    (output,) = same_as_cpu(core, ov.Model([ops.result(ops.add(x, y))], [x, y], "add"), on_npu)
    assert output.shape == tuple(shape)


@pytest.mark.parametrize("rank", [6, 8])
def test_a_rank_that_no_argument_has(core: ov.Core, rank: int) -> None:
    x = parameter([2] * rank)
    with pytest.raises(RuntimeError) as error:
        core.compile_model(ov.Model([ops.result(ops.relu(x))], [x], "relu"), "NPU")
    assert f"an argument of a graph has up to 5 dimensions, but 'x' has {rank}" in refusal(error)


def test_more_dimensions_inside(core: ov.Core, on_npu: OnNpu) -> None:
    """Only arguments are limited."""
    x = parameter([4, 16])
    inside = ops.transpose(ops.reshape(x, [2, 2, 2, 2, 2, 2], False), [5, 4, 3, 2, 1, 0])
    same_as_cpu(core, ov.Model([ops.result(ops.reshape(inside, [64], False))], [x], "deep"), on_npu)


def test_no_elements(core: ov.Core, on_npu: OnNpu) -> None:
    x, y = parameter([0, 3]), parameter([2, 3], name="y")
    model = ov.Model([ops.result(ops.relu(x)), ops.result(ops.relu(y))], [x, y], "empty")
    assert same_as_cpu(core, model, on_npu)[0].data == b""


def test_too_large(core: ov.Core) -> None:
    x = parameter([1 << 20, 1 << 20, 4])
    with pytest.raises(RuntimeError) as error:
        core.compile_model(ov.Model([ops.result(ops.relu(x))], [x], "relu"), "NPU")
    assert "'x' is too large with the shape [1048576,1048576,4]" in refusal(error)


@pytest.mark.parametrize(("dimension", "told"), [(-1, "[?,3]"), ((1, 4), "[?,3]")])
def test_dynamic_input(core: ov.Core, dimension: int | tuple[int, int], told: str) -> None:
    size = ov.Dimension(*dimension) if isinstance(dimension, tuple) else ov.Dimension(dimension)
    x = ops.parameter(ov.PartialShape([size, 3]), ov.Type.f32, name="x")
    with pytest.raises(RuntimeError) as error:
        core.compile_model(ov.Model([ops.result(ops.relu(x))], [x], "relu"), "NPU")
    assert f"'x' has the dynamic shape {told}; the graph needs static shapes, so reshape the model" in refusal(error)


def test_dynamic_output(core: ov.Core) -> None:
    x = parameter([8])
    result = ops.result(ops.non_zero(x))
    result.set_friendly_name("places")
    with pytest.raises(RuntimeError) as error:
        core.compile_model(ov.Model([result], [x], "non_zero"), "NPU")
    assert "'places' has the dynamic shape [1,?]" in refusal(error)


def test_order_of_inputs_and_outputs(core: ov.Core, on_npu: OnNpu) -> None:
    """The order is the model's, not that in which the graph comes upon them."""
    a, b, c = (parameter([2, 3], name=name) for name in "abc")
    outputs = [ops.result(ops.subtract(c, b)), ops.result(ops.subtract(b, a)), ops.result(a)]
    model = ov.Model(outputs, [b, c, a], "order")
    same_as_cpu(core, model, on_npu)
    given = [tensor.data for tensor in random_inputs(model, 7)]
    found = [value.data for value in infer(on_npu(model), random_inputs(model, 7))]
    assert found == [(given[1] - given[0]).tobytes(), (given[0] - given[2]).tobytes(), given[2].tobytes()]


def test_outputs_of_one_operation(core: ov.Core, on_npu: OnNpu) -> None:
    x = parameter([2, 6])
    parts = ops.split(x, 1, 3)
    outputs = [ops.result(parts.output(index)) for index in (2, 0, 1)]
    same_as_cpu(core, ov.Model(outputs, [x], "split"), on_npu)


def test_unused_input(core: ov.Core, on_npu: OnNpu) -> None:
    x, unused = parameter([2, 3]), parameter([5], "i64", "unused")
    same_as_cpu(core, ov.Model([ops.result(ops.relu(x))], [unused, x], "unused"), on_npu)


def test_input_that_is_the_output(core: ov.Core, on_npu: OnNpu) -> None:
    x, y = parameter([2, 3]), parameter([7], "u8", "y")
    outputs = [ops.result(y), ops.result(ops.relu(x)), ops.result(x), ops.result(x)]
    same_as_cpu(core, ov.Model(outputs, [x, y], "direct"), on_npu)


def test_two_results_of_one_node(core: ov.Core, on_npu: OnNpu) -> None:
    x = parameter([2, 3])
    node = ops.relu(x)
    outputs = [ops.result(node), ops.result(node)]
    same_as_cpu(core, ov.Model(outputs, [x], "twice"), on_npu)


def test_results_along_a_chain(core: ov.Core, on_npu: OnNpu) -> None:
    x = parameter([2, 3])
    inner = ops.relu(x)
    outputs = [ops.result(inner), ops.result(ops.sigmoid(inner)), ops.result(ops.reshape(inner, [6], False))]
    same_as_cpu(core, ov.Model(outputs, [x], "chain"), on_npu)


def test_no_input(core: ov.Core, on_npu: OnNpu) -> None:
    constant = ops.constant(np.arange(6, dtype=np.float32))
    same_as_cpu(core, ov.Model([ops.result(constant)], [], "constant"), on_npu)


def test_weights_and_several_layers(core: ov.Core, on_npu: OnNpu) -> None:
    same_as_cpu(core, conv_model(), on_npu)


def test_batch(core: ov.Core, on_npu: OnNpu) -> None:
    model = conv_model()
    model.reshape([4, 3, 32, 32])
    features, _ = same_as_cpu(core, model, on_npu)
    assert features.shape == (4, 8, 32, 32)


def test_many_inputs_and_outputs(core: ov.Core, on_npu: OnNpu) -> None:
    inputs = [parameter([index + 1, 4], name=f"x{index}") for index in range(40)]
    outputs = [ops.result(ops.relu(x)) for x in inputs]
    same_as_cpu(core, ov.Model(outputs, inputs, "many"), on_npu)


def test_names_of_any_kind(core: ov.Core, on_npu: OnNpu) -> None:
    """Names with the marks of XML, with commas (which part tensor names in the IR), and without ASCII."""
    x = ops.parameter([2, 3], ov.Type.f32, name="a <\"&>\n\t'é")
    x.output(0).set_names({"x,y", "z\\w", "é"})
    same_as_cpu(core, ov.Model([ops.result(ops.relu(x))], [x], "names"), on_npu)


def test_long_names(core: ov.Core) -> None:
    """The driver's structures have room for 255 characters; the compiled model keeps its own names."""
    x = parameter([2, 3], name="n" * 400)
    same_as_cpu(core, ov.Model([ops.result(ops.relu(x))], [x], "long"), lambda model: core.compile_model(model, "NPU"))
