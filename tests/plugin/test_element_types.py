"""Every element type of OpenVINO: computed as the CPU plugin computes it, or refused in plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops
from openvino.preprocess import PrePostProcessor
from plugin_helpers import infer, parameter, refusal, same_as_cpu

if TYPE_CHECKING:
    from plugin_helpers import OnNpu

NUMBERS = ["f16", "bf16", "f32", "f64", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"]
STORED = ["boolean", "i4", "u4", "u2", "nf4", "f8e4m3", "f8e5m2", "f8e8m0"]
REFUSED = {
    "u1": "Unsupported tensor precision: u1!",
    "u3": "Incorrect precision: u3",
    "u6": "Incorrect precision: u6",
    "f4e2m1": "an argument of a graph cannot have the type f4e2m1, as 'x' has",
    "string": "Incorrect precision: string",
}


def test_f32_is_computed_exactly(core: ov.Core, on_npu: OnNpu) -> None:
    """301 is no bf16, in which the CPU plugin computes by itself where the CPU can."""
    x = parameter([1, 16])
    same = on_npu(ov.Model([ops.result(ops.matmul(x, np.eye(16, dtype=np.float32), False, False))], [x], "same"))
    given = np.full((1, 16), 301, np.float32)
    assert (same(given)[0] == given).all()


def test_no_type_is_forgotten() -> None:
    types = {name for name in dir(ov.Type) if isinstance(getattr(ov.Type, name), ov.Type)}
    assert types - {"dynamic"} == {*NUMBERS, *STORED, *REFUSED}


@pytest.mark.parametrize("type_", NUMBERS + STORED)
def test_passed_through(core: ov.Core, on_npu: OnNpu, type_: str) -> None:
    x = parameter([1, 3, 8, 8], type_)
    same_as_cpu(core, ov.Model([ops.result(x)], [x], "pass"), on_npu)


@pytest.mark.parametrize("type_", NUMBERS + STORED)
def test_reshaped(core: ov.Core, on_npu: OnNpu, type_: str) -> None:
    x = parameter([1, 3, 8, 8], type_)
    same_as_cpu(core, ov.Model([ops.result(ops.reshape(x, [3, 64], False))], [x], "reshape"), on_npu)


@pytest.mark.parametrize("type_", NUMBERS)
def test_computed(core: ov.Core, on_npu: OnNpu, type_: str) -> None:
    x, y = parameter([1, 3, 8, 8], type_), parameter([1, 3, 1, 8], type_, "y")
    outputs = [ops.result(ops.add(x, y)), ops.result(ops.multiply(x, x))]
    same_as_cpu(core, ov.Model(outputs, [x, y], "compute"), on_npu)


@pytest.mark.parametrize("type_", NUMBERS + STORED)
def test_converted_to_f32(core: ov.Core, on_npu: OnNpu, type_: str) -> None:
    x = parameter([2, 8], type_)
    same_as_cpu(core, ov.Model([ops.result(ops.convert(x, "f32"))], [x], "convert"), on_npu)


@pytest.mark.parametrize("type_", NUMBERS + STORED)
def test_converted_from_f32(core: ov.Core, on_npu: OnNpu, type_: str) -> None:
    x = parameter([2, 8])
    same_as_cpu(core, ov.Model([ops.result(ops.convert(x, type_))], [x], "convert"), on_npu)


def test_types_and_layout_of_the_preprocessor(core: ov.Core, on_npu: OnNpu) -> None:
    x = parameter([1, 3, 8, 8])
    processor = PrePostProcessor(ov.Model([ops.result(ops.relu(x))], [x], "picture"))
    processor.input().tensor().set_element_type(ov.Type.u8).set_layout(ov.Layout("NHWC"))
    processor.input().model().set_layout(ov.Layout("NCHW"))
    processor.output().tensor().set_element_type(ov.Type.f16)
    (output,) = same_as_cpu(core, processor.build(), on_npu)
    assert output.type == "f16"


@pytest.mark.parametrize("type_", REFUSED)
def test_refused(core: ov.Core, type_: str) -> None:
    x = parameter([2, 8], type_)
    with pytest.raises(RuntimeError) as error:
        infer(core.compile_model(ov.Model([ops.result(x)], [x], "pass"), "NPU"), [])
    assert REFUSED[type_] in refusal(error)


def test_refused_by_the_compiler(core: ov.Core) -> None:
    """What executes graphs cannot compute with u1."""
    x = parameter([2, 8], "u1")
    with pytest.raises(RuntimeError) as error:
        core.compile_model(ov.Model([ops.result(ops.convert(x, "f32"))], [x], "convert"), "NPU")
    assert "Input image format u1 is not supported yet" in refusal(error)
