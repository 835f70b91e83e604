"""What the plugin tells of the device is what the driver is; and each option is accepted or refused for a reason."""

from __future__ import annotations

import gc
import os
from typing import Any

import openvino as ov
import pytest
from plugin_helpers import conv_model, infer, on_cpu, random_inputs, refusal, relu_model

import l0py
from l0py import loader, softdriver


def npu(core: ov.Core, name: str) -> Any:
    return core.get_property("NPU", name)


def test_device(core: ov.Core, device: l0py.Device) -> None:
    """Nobody is led to believe that this is hardware."""
    assert core.available_devices.count("NPU") == 1
    assert npu(core, "FULL_DEVICE_NAME") == "l0py software NPU" == device.name
    assert npu(core, "DEVICE_UUID") == device.uuid.hex()
    assert npu(core, "NPU_DRIVER_VERSION") == device.driver.properties.version
    assert npu(core, "DEVICE_TYPE").name == "INTEGRATED"
    assert core.get_property("NPU.4000", "FULL_DEVICE_NAME") == device.name


def test_supported_properties_can_be_read(core: ov.Core) -> None:
    for name, access in npu(core, "SUPPORTED_PROPERTIES").items():
        if access != "WO":
            npu(core, name)
    compiled = core.compile_model(relu_model(), "NPU")
    for name, access in compiled.get_property("SUPPORTED_PROPERTIES").items():
        if access != "WO":
            compiled.get_property(name)


def test_compiled_by_the_driver(core: ov.Core) -> None:
    compiled = core.compile_model(relu_model(), "NPU")
    assert compiled.get_property("NPU_COMPILER_TYPE").name == "DRIVER"
    assert compiled.get_property("EXECUTION_DEVICES") == "NPU"
    assert compiled.get_property("NETWORK_NAME") == "relu"


def test_memory(core: ov.Core) -> None:
    """All of it is the machine's; what is allocated is what the driver has allocated."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert npu(core, "NPU_DEVICE_TOTAL_MEM_SIZE") == physical
    gc.collect()
    told, recorded = npu(core, "NPU_DEVICE_ALLOC_MEM_SIZE"), softdriver.record()["memory"]["now"]
    tensor = core.get_default_context("NPU").create_host_tensor(ov.Type.u8, ov.Shape([1 << 20]))
    assert npu(core, "NPU_DEVICE_ALLOC_MEM_SIZE") == told + (1 << 20)
    assert softdriver.record()["memory"]["now"] == recorded + (1 << 20)
    del tensor
    assert npu(core, "NPU_DEVICE_ALLOC_MEM_SIZE") == told


OPTIONS = [
    {"PERFORMANCE_HINT": "LATENCY"},
    {"PERFORMANCE_HINT": "THROUGHPUT"},
    {"PERFORMANCE_HINT": "THROUGHPUT", "PERFORMANCE_HINT_NUM_REQUESTS": 2},
    {"EXECUTION_MODE_HINT": "ACCURACY"},
    {"INFERENCE_PRECISION_HINT": "f16"},
    {"LOG_LEVEL": "LOG_NONE"},
    {"MODEL_PRIORITY": "LOW"},
    {"MODEL_PRIORITY": "HIGH"},
    {"WORKLOAD_TYPE": "EFFICIENT"},
    {"NPU_TURBO": True},
    {"NPU_TILES": 2},
    {"NPU_PLATFORM": "4000"},
    {"NPU_QDQ_OPTIMIZATION": True},
    {"NPU_COMPILER_DYNAMIC_QUANTIZATION": True},
    {"NPU_COMPILATION_MODE_PARAMS": "optimization-level=1 other=value"},
    {"NPU_BYPASS_UMD_CACHING": True},
    {"NPU_DEFER_WEIGHTS_LOAD": True},
    {"NPU_DISABLE_IDLE_MEMORY_PRUNING": True},
    {"NPU_RUN_INFERENCES_SEQUENTIALLY": True},
    {"NPU_TURBO": True, "MODEL_PRIORITY": "HIGH", "WORKLOAD_TYPE": "EFFICIENT", "PERF_COUNT": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda given: ",".join(f"{k}={v}" for k, v in given.items()))
def test_option(core: ov.Core, options: dict[str, Any]) -> None:
    """Hints to hardware change no result."""
    model = conv_model()
    inputs = random_inputs(model)
    compiled = core.compile_model(model, "NPU", options)
    assert infer(compiled, inputs) == infer(on_cpu(core, model), inputs)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"NONSENSE": "1"}, "Option 'NONSENSE' is not supported"),
        ({"NPU_PLATFORM": "3720"}, "Could not find a valid NPU device for the provided configuration"),
        ({"NPU_COMPILER_TYPE": "PLUGIN"}, "Cannot load library"),
        ({"PERFORMANCE_HINT": "FAST"}, "FAST"),
    ],
)
def test_refused_option(core: ov.Core, options: dict[str, Any], told: str) -> None:
    with pytest.raises(RuntimeError) as error:
        core.compile_model(relu_model(), "NPU", options)
    assert told in refusal(error)


def test_optimal_number_of_requests(core: ov.Core) -> None:
    def optimal(hint: str) -> int:
        compiled = core.compile_model(relu_model(), "NPU", {"PERFORMANCE_HINT": hint})
        return int(compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))

    assert optimal("LATENCY") == 1
    assert optimal("THROUGHPUT") > 1


@pytest.mark.parametrize(("priority", "number"), [("LOW", 1), ("MEDIUM", 0), ("HIGH", 2)])
def test_priority_reaches_the_queue(core: ov.Core, priority: str, number: int) -> None:
    if loader.info().source != "embedded":
        pytest.skip("other loaders may have handles of their own for the driver's")
    softdriver.record_calls()
    softdriver.reset_record()
    try:
        compiled = core.compile_model(relu_model(), "NPU", {"MODEL_PRIORITY": priority})
        compiled.create_infer_request().infer()
        trace = softdriver.record()["trace"]
    finally:
        softdriver.record_calls(False)
    (queue,) = {call["arguments"][0] for call in trace if call["function"] == "zeCommandQueueExecuteCommandLists"}
    found = l0py.lib.ffi.new("ze_command_queue_priority_t*")
    assert l0py.lib.zeCommandQueueGetPriority(queue, found) == 0
    assert found[0] == number


def test_workload_type_while_running(core: ov.Core) -> None:
    model = relu_model()
    inputs = random_inputs(model)
    wanted = infer(on_cpu(core, model), inputs)
    compiled = core.compile_model(model, "NPU")
    softdriver.record_calls()
    softdriver.reset_record()
    try:
        for workload in ("EFFICIENT", "DEFAULT"):
            compiled.set_property({"WORKLOAD_TYPE": workload})
            assert compiled.get_property("WORKLOAD_TYPE").name == workload
            assert infer(compiled, inputs) == wanted
        calls = softdriver.record()["calls"]["command_queue_pfnSetWorkloadType"]
    finally:
        softdriver.record_calls(False)
    assert calls["count"] >= 1
    assert calls["failures"] == 0
