"""PERF_COUNT: the layers' times, measured where they ran."""

from __future__ import annotations

import io
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from plugin_helpers import conv_model, infer, on_cpu, random_inputs, slow_model

if TYPE_CHECKING:
    import openvino as ov

ON = {"PERF_COUNT": True}


def test_layers(core: ov.Core) -> None:
    model = conv_model()
    request = core.compile_model(model, "NPU", ON).create_infer_request()
    request.infer(random_inputs(model))
    layers = request.profiling_info
    names = [layer.node_name for layer in layers]
    assert len(set(names)) == len(names)
    assert any(layer.node_type == "Convolution" for layer in layers)
    assert any("scores" in name for name in names)
    assert all(layer.status.name in ("EXECUTED", "NOT_RUN", "OPTIMIZED_OUT") for layer in layers)


def test_times(core: ov.Core) -> None:
    """Together they are most of what an inference takes, and no more. The CPU plugin keeps averages only."""
    request = core.compile_model(slow_model(), "NPU", ON).create_infer_request()
    took = []
    for _ in range(5):
        begin = time.perf_counter()
        request.infer()
        took.append(time.perf_counter() - begin)
        told = sum((layer.real_time for layer in request.profiling_info), timedelta()).total_seconds()
        assert min(took) / 3 < told <= max(took)


def test_results_are_the_same(core: ov.Core) -> None:
    model = conv_model()
    inputs = random_inputs(model)
    assert infer(core.compile_model(model, "NPU", ON), inputs) == infer(on_cpu(core, model), inputs)


def test_off(core: ov.Core) -> None:
    request = core.compile_model(conv_model(), "NPU").create_infer_request()
    request.infer()
    assert request.profiling_info == []


def test_imported(core: ov.Core) -> None:
    """A model exported with it has it; one without cannot gain it."""
    model = conv_model()
    blob = core.compile_model(model, "NPU", ON).export_model().getvalue()
    request = core.import_model(io.BytesIO(blob), "NPU", ON).create_infer_request()
    request.infer()
    assert any(layer.node_type == "Convolution" for layer in request.profiling_info)
    plain = core.compile_model(model, "NPU").export_model().getvalue()
    with pytest.raises(RuntimeError, match="Model was not compiled with profiling enabled"):
        core.import_model(io.BytesIO(plain), "NPU", ON).create_infer_request().infer()
