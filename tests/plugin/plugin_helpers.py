"""Models, inputs and comparisons that the tests of this directory share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import openvino as ov
from openvino import opset13 as ops

if TYPE_CHECKING:
    from collections.abc import Callable

    OnNpu = Callable[[ov.Model], ov.CompiledModel]

FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
LONG = {"i64": np.int64, "u64": np.uint64}


class Value(NamedTuple):
    """What an output is: its bytes are compared, so that a difference in the last bit counts."""

    type: str
    shape: tuple[int, ...]
    data: bytes


def tensor_bytes(tensor: ov.Tensor) -> Any:
    """A tensor's memory as u8."""
    return tensor.data.reshape(-1).view(np.uint8)


def value_of(tensor: ov.Tensor) -> Value:
    return Value(tensor.element_type.get_type_name(), tuple(tensor.shape), tensor_bytes(tensor).tobytes())


def random_tensor(type_: ov.Type, shape: Any, random: np.random.Generator) -> ov.Tensor:
    """Random bits; for types whose bits may mean nothing or a NaN, random values.

    Those of 64 bits are small: the CPU plugin computes with 32, and would make the same number of most others.
    """
    tensor = ov.Tensor(type_, shape)
    raw, name = tensor_bytes(tensor), type_.get_type_name()
    if name in FLOATS:
        raw[:] = (4 * random.standard_normal(tensor.size)).astype(FLOATS[name]).view(np.uint8)
    elif name in LONG:
        raw[:] = random.integers(0, 1 << 15, tensor.size).astype(LONG[name]).view(np.uint8)
    elif name == "bf16":
        values = (4 * random.standard_normal(tensor.size)).astype(np.float32)
        raw[:] = (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    else:
        raw[:] = random.integers(0, 2 if name == "boolean" else 256, raw.size, dtype=np.uint8)
    return tensor


def random_inputs(model: ov.Model | ov.CompiledModel, seed: int = 0) -> list[ov.Tensor]:
    random = np.random.default_rng(seed)
    return [random_tensor(port.element_type, port.shape, random) for port in model.inputs]


def on_cpu(core: ov.Core, model: ov.Model) -> ov.CompiledModel:
    """Compiled for the CPU plugin as the software NPU computes: in f32, also where the CPU has bf16."""
    return core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})


def infer(compiled: ov.CompiledModel, inputs: list[ov.Tensor]) -> list[Value]:
    """Runs a new request over copies of the inputs, in its own tensors; all outputs."""
    request = compiled.create_infer_request()
    for index, given in enumerate(inputs):
        tensor_bytes(request.get_input_tensor(index))[:] = tensor_bytes(given)
    request.start_async()
    request.wait()
    return [value_of(request.get_output_tensor(index)) for index in range(len(compiled.outputs))]


def same_as_cpu(core: ov.Core, model: ov.Model, on_npu: OnNpu) -> list[Value]:
    """Asserts that the NPU's outputs are those of the CPU plugin, bit by bit, and returns them."""
    inputs = random_inputs(model)
    wanted = infer(on_cpu(core, model), inputs)
    compiled = on_npu(model)
    assert [port.get_names() for port in compiled.inputs] == [port.get_names() for port in model.inputs]
    assert infer(compiled, inputs) == wanted
    return wanted


def refusal(error: Any) -> str:
    """The text of an exception in one line."""
    return " ".join(str(error.value).split())


def parameter(shape: list[int], type_: str = "f32", name: str = "x") -> Any:
    made = ops.parameter(shape, getattr(ov.Type, type_), name=name)
    made.output(0).set_names({name})
    return made


def relu_model(shape: list[int] | None = None) -> ov.Model:
    """x -> max(x, 0)."""
    x = parameter(shape or [1, 3, 8, 8])
    return ov.Model([ops.result(ops.relu(x))], [x], "relu")


def conv_model() -> ov.Model:
    """A picture through a convolution with random weights, and its softmax: weights, several layers, two outputs."""
    random = np.random.default_rng(1)
    x = parameter([1, 3, 32, 32])
    weights = ops.constant(random.standard_normal((8, 3, 3, 3)).astype(np.float32))
    features = ops.relu(ops.convolution(x, weights, [1, 1], [1, 1], [1, 1], [1, 1]), name="features")
    scores = ops.softmax(ops.reshape(features, [1, -1], False), 1, name="scores")
    return ov.Model([ops.result(features), ops.result(scores)], [x], "conv")


def slow_model() -> ov.Model:
    """Some tens of milliseconds of matrix products."""
    random = np.random.default_rng(2)
    x = parameter([512, 512])
    weights = ops.constant((random.standard_normal((512, 512)) / 23).astype(np.float32))
    product = x
    for _ in range(12):
        product = ops.matmul(product, weights, False, False)
    return ov.Model([ops.result(product)], [x], "slow")


def zero_state(name: str, shape: list[int]) -> Any:
    """What a state holds before the inference."""
    return ops.read_value(ops.constant(np.zeros(shape, np.float32)), name, ov.Type.f32, shape)


class Halve(ov.Op):
    """An operation that only this process knows: the CPU plugin calls `evaluate`, the driver cannot compile it."""

    def __init__(self, inputs: Any = None) -> None:
        super().__init__(self, inputs)

    def validate_and_infer_types(self) -> None:
        self.set_output_type(0, self.get_input_element_type(0), self.get_input_partial_shape(0))

    def clone_with_new_inputs(self, inputs: Any) -> Halve:
        return Halve(inputs)

    def has_evaluate(self) -> bool:
        return True

    def evaluate(self, outputs: Any, inputs: Any) -> bool:
        outputs[0].data[:] = inputs[0].data / 2
        return True

    def visit_attributes(self, visitor: Any) -> bool:
        return True


def halving_model() -> ov.Model:
    """x -> exp(halve(relu(x))): the middle is nothing for the NPU."""
    x = parameter([2, 8])
    halved = Halve([ops.relu(x, name="before")])
    halved.set_friendly_name("middle")
    return ov.Model([ops.result(ops.exp(halved, name="after"))], [x], "halving")
