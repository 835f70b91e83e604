"""Verdicts: what they say where nothing is known, and that nobody takes that for an answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import openvino as ov
import pytest
from npu_helpers import aligned_array

import l0py
import ovadapter
from l0py import softdriver
from ovadapter import UnknownTensor, Verdict, VerdictUnknown
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
        x = context.alloc_host(4000)
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


def test_without_mutable_lists_everything_is_copied(npu: ovadapter.NpuContext, monkeypatch: pytest.MonkeyPatch) -> None:
    router = ovadapter.routes.any_router()
    monkeypatch.setattr(router, "software", False)
    monkeypatch.setattr(router, "features", ovadapter.routes.Features(False, True, True, True, True))
    placed = Placed("SHARED_BUF", 4096, 4096)
    assert judge(placed, [placed], mark=0, ran=True)[0] is True
