"""Verdicts: what they say where nothing is known, and that nobody takes that for an answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import openvino as ov
import pytest
from npu_helpers import add_model, aligned_array
from openvino import opset13 as ops

import l0py
import ovadapter
from l0py import softdriver
from ovadapter import UnknownTensor, Verdict, VerdictUnknown, rules
from ovadapter.verdict import Placed, judge


def test_truth() -> None:
    copied, kept, unknown = (
        Verdict("x", answer, "a rule", "keeper", "rule table", 4096) for answer in (True, False, None)
    )
    assert copied
    assert not kept
    with pytest.raises(VerdictUnknown, match="x: unknown"):
        bool(unknown)
    with pytest.raises(ValueError):
        assert not unknown
    assert str(kept) == "x: zero copy (keeper at 0x1000; rule table): a rule"


def test_a_request_that_has_not_run(npu: ovadapter.NpuContext, paged: Any) -> None:
    request = paged.create_infer_request()
    assert ovadapter.was_copied(request, "xt").copied is None
    with (
        l0py.Context(npu.device) as context,
        context.alloc_host(8192) as x,
        npu.bind(request, {"xt": x}) as binding,
    ):
        verdict = binding.verdict("xt")
        assert (verdict.copied, verdict.evidence) == (None, "none")


def test_unknown_tensor(compiled: Any) -> None:
    with pytest.raises(UnknownTensor, match="it has x_alias = xt, yt"):
        ovadapter.was_copied(compiled.create_infer_request(), "nope")


def test_a_remote_tensor_that_was_set_without_bind_is_unknown(npu: ovadapter.NpuContext, compiled: Any) -> None:
    request = compiled.create_infer_request()
    tensor = npu.remote_context.create_tensor(ov.Type.f32, ov.Shape([1, 1000]), {})
    request.set_tensor("xt", tensor)
    request.infer()
    verdict = npu.was_copied(request, "xt")
    assert verdict.copied is None
    assert "bind()" in verdict.rule


def test_verdicts_after_the_record_was_reset(npu: ovadapter.NpuContext, compiled: Any) -> None:
    with l0py.Context(npu.device) as context:
        x = context.alloc_host(4000, exportable=True)
        with npu.bind(compiled.create_infer_request(), {"xt": x}) as binding:
            binding.infer()
            softdriver.reset_record()
            assert binding.verdict("xt").copied is None
            binding.infer()
            assert not binding.verdict("xt")


def test_hardware_is_judged_by_the_rules(npu: ovadapter.NpuContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no record, each answer comes from the rule table, or there is none."""
    monkeypatch.setattr(ovadapter.routes.any_router(), "software", False)
    array = aligned_array(8192)
    host = npu.remote_context.create_host_tensor(ov.Type.u8, ov.Shape([8192]))
    with npu.remote_tensor(array, [8192], "u8") as tensor:
        table = [
            (Placed("SHARED_BUF", 4096, 100), False),
            (Placed("CPU_VA", array.ctypes.data, 8192), False),
            (Placed("keeper", array.ctypes.data + 3, 100), False),
            (Placed("plain tensor", tensor.address + 3, 100), False),
            (Placed("plain tensor", host.data.ctypes.data, 8192), None),  # OpenVINO's own, or a third party's?
            (Placed("plain tensor", aligned_array(4096).ctypes.data, 4096), None),  # unless the driver refuses
            (Placed("plain tensor", np.zeros(100, np.uint8).ctypes.data | 1, 100), True),
            (Placed("copy", np.zeros(100, np.uint8).ctypes.data | 1, 100), True),
            (Placed("remote tensor", None, 0), None),
        ]
        for placed, copied in table:
            answer, rule, evidence = judge(placed, [placed], mark=0, ran=True)
            assert answer is copied, placed
            assert evidence == ("none" if copied is None else "rule table")
            assert rule


def test_the_rule_fits_the_driver_and_the_port(npu: ovadapter.NpuContext, monkeypatch: pytest.MonkeyPatch) -> None:
    router = ovadapter.routes.any_router()
    monkeypatch.setattr(router, "software", False)
    address = aligned_array(4096).ctypes.data
    bounded = Placed("plain tensor", address | 1, 100, dynamic=True)
    assert judge(bounded, [bounded], mark=0, ran=True) == (None, rules.SHAPE_TENSOR, "none")
    monkeypatch.setattr(router, "features", ovadapter.routes.Features(True, True, False, True, True))
    for size, rule in ((4096, rules.IMPORT_MISSING), (4095, rules.UNALIGNED)):
        placed = Placed("plain tensor", address, size)
        assert judge(placed, [placed], mark=0, ran=True) == (True, rule, "rule table")


def test_without_mutable_lists_everything_is_copied(npu: ovadapter.NpuContext, monkeypatch: pytest.MonkeyPatch) -> None:
    router = ovadapter.routes.any_router()
    monkeypatch.setattr(router, "software", False)
    monkeypatch.setattr(router, "features", ovadapter.routes.Features(False, True, True, True, True))
    placed = Placed("SHARED_BUF", 4096, 4096)
    assert judge(placed, [placed], mark=0, ran=True)[0] is True


@pytest.mark.parametrize("exportable", [True, False])
def test_a_tensor_that_was_set_over_a_bound_one(npu: ovadapter.NpuContext, compiled: Any, exportable: bool) -> None:
    """The inference before it is not the one that is asked about."""
    request = compiled.create_infer_request()
    with (
        l0py.Context(npu.device) as context,
        context.alloc_host(4000, exportable=exportable) as x,
        context.alloc_host(4000, exportable=True) as y,
        context.alloc_host(4000, exportable=True) as z,
        npu.bind(request, {"xt": x}, {"yt": y}) as binding,
        npu.remote_tensor(z, [1, 1000], "f32") as other,
    ):
        binding.infer()
        assert not any(binding.verdicts().values())
        array = np.zeros((1, 1000), np.float32)
        request.set_tensor("xt", ov.Tensor(array, shared_memory=True))
        binding.infer()
        assert binding.verdict("xt")
        assert not binding.verdict("yt")
        request.set_tensor("xt", other.remote)  # which OpenVINO does not tell from another remote tensor
        binding.infer()
        assert binding.verdict("xt").copied is None
        assert not binding.verdict("yt")


def test_executions_of_others_on_the_same_memory(npu: ovadapter.NpuContext, compiled: Any) -> None:
    """First it is copied; when another request has imported it, that one runs on it in place."""
    if not npu.features.cpu_va:
        pytest.skip("this OpenVINO imports nothing by address")
    with l0py.Context(npu.device) as context, context.alloc_host(4096) as memory:
        results = [context.alloc_host(4000, exportable=True) for _ in range(2)]
        requests = [compiled.create_infer_request() for _ in range(2)]
        array = memory.numpy("f4", (1, 1000))[:1, :1000]
        first = npu.bind(requests[0], {"xt": array}, {"yt": results[0]}, allow_copy=True)
        first.infer()
        with npu.bind(requests[1], {"xt": memory}, {"yt": results[1]}) as second:
            second.infer()
            assert not any(second.verdicts().values())
            assert first.verdict("xt")
            assert not first.verdict("yt")
        assert first.verdict("xt").copied is not False  # the second's tensors are forgotten: nobody can tell
        first.close()
        del array


def test_an_execution_of_another_model_on_a_shared_input(npu: ovadapter.NpuContext, compiled: Any) -> None:
    other = npu.core.compile_model(add_model([1, 1000], value=2.0), "NPU")
    with (
        l0py.Context(npu.device) as context,
        context.alloc_host(4000, exportable=True) as shared,
        npu.remote_tensor(shared, [1, 1000], "f32") as x,
        context.alloc_host(4000, exportable=True) as y,
        context.alloc_host(4000, exportable=True) as z,
        npu.bind(compiled.create_infer_request(), {"xt": x}, {"yt": y}) as binding,
    ):
        binding.infer()
        with npu.bind(other.create_infer_request(), {"xt": x}, {"yt": z}) as second:
            second.infer()
        assert not any(binding.verdicts().values())


def test_waiting_is_not_running(npu: ovadapter.NpuContext, compiled: Any) -> None:
    with (
        l0py.Context(npu.device) as context,
        context.alloc_host(4000, exportable=True) as x,
        npu.bind(compiled.create_infer_request(), {"xt": x}) as binding,
    ):
        binding.wait()
        assert binding.verdict("xt").copied is None


def test_a_name_of_an_input_and_an_output(npu: ovadapter.NpuContext) -> None:
    """A binding's verdict is about the port that was bound."""
    parameter = ops.parameter([1024], ov.Type.f32)
    parameter.output(0).get_tensor().set_names({"both"})
    model = ov.Model([ops.result(ops.negative(parameter)), ops.result(parameter)], [parameter], "names")
    compiled = npu.core.compile_model(model, "NPU")
    array = aligned_array(4096, skew=64).view(np.float32)
    with l0py.Context(npu.device) as context, context.alloc_host(4096, exportable=True) as x:
        request = compiled.create_infer_request()
        port = compiled.output(1)
        with npu.bind(request, {"both": x}, {port: array}, allow_copy=True) as binding:
            binding.infer()
            assert not binding.verdict("both")
            assert binding.verdict(port)


def test_an_inference_that_failed(npu: ovadapter.NpuContext, compiled: Any) -> None:
    with (
        l0py.Context(npu.device) as context,
        context.alloc_host(4000, exportable=True) as x,
        npu.bind(compiled.create_infer_request(), {"xt": x}) as binding,
    ):
        binding.infer()
        assert not binding.verdict("xt")
        softdriver.inject("zeCommandQueueExecuteCommandLists", 0, "ZE_RESULT_ERROR_DEVICE_LOST")
        with pytest.raises(RuntimeError):
            binding.infer()
        assert binding.verdict("xt").copied is None
        binding.infer()
        assert not binding.verdict("xt")


def test_after_the_binding_nothing_is_known_of_the_tensors_put_back(
    npu: ovadapter.NpuContext, context: l0py.Context, compiled: Any
) -> None:
    request = compiled.create_infer_request()
    request.infer()  # with tensors of its own
    x = context.alloc_host(4000, exportable=True)
    with npu.bind(request, {"xt": x}) as binding:
        binding.infer()
        assert not npu.was_copied(request, "xt")
    for name in ("xt", "yt"):
        assert npu.was_copied(request, name).copied is None
    request.infer()
    assert npu.was_copied(request, "xt").copied is False
    x.close()


def test_a_request_of_another_device(npu: ovadapter.NpuContext) -> None:
    request = npu.core.compile_model(add_model([1, 8]), "CPU").create_infer_request()
    request.infer()
    verdict = npu.was_copied(request, "xt")
    assert verdict.copied is None
    assert verdict.evidence == "none"
    assert "CPU" in verdict.rule
