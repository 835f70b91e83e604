from __future__ import annotations

from typing import Any

import pytest

import l0py
from l0py import softdriver


def test_the_files_are_there() -> None:
    assert softdriver.path().exists()
    assert softdriver.loader_path().exists()


def test_enable_in_a_process_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZE_ENABLE_ALT_DRIVERS", "")  # which it changes: not for other tests' children
    assert softdriver.enable().is_software


def test_enable_comes_first(python: Any) -> None:
    script = "import l0py; print(l0py.softdriver.enable().kind, l0py.find_device().name)"
    done = python(script, L0PY_SOFTDRIVER=None, ZE_ENABLE_ALT_DRIVERS=None)
    assert done.stdout.strip() == "npu l0py software NPU", done.stderr


def test_enable_that_comes_too_late(python: Any) -> None:
    script = """
import os, l0py
from l0py import driver
class Real:
    is_software = False
driver._drivers = (Real(),)  # as after an init that found the system's
try:
    l0py.softdriver.enable()
except l0py.Error as error:
    print(error)
assert "ZE_ENABLE_ALT_DRIVERS" not in os.environ
"""
    done = python(script, L0PY_SOFTDRIVER=None, ZE_ENABLE_ALT_DRIVERS=None)
    assert "too late" in done.stdout, done.stderr
    assert "L0PY_SOFTDRIVER=1" in done.stdout


def test_the_environment_forbids_it(python: Any) -> None:
    script = """
import l0py
try:
    l0py.softdriver.enable()
except l0py.Error as error:
    print(error)
"""
    assert "forbids" in python(script, L0PY_SOFTDRIVER="0").stdout


def test_a_call_fails_when_it_was_told_to(context: l0py.Context, no_leaks: None) -> None:
    softdriver.inject("zeMemAllocHost", after=1, result="ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY", count=2)
    context.alloc_host(4096).close()
    for _ in range(2):
        with pytest.raises(l0py.OutOfMemory, match="zeMemAllocHost"):
            context.alloc_host(4096)
    context.alloc_host(4096).close()
    softdriver.inject("zeMemAllocHost", result=0x70000001, count=0)
    for _ in range(5):
        with pytest.raises(l0py.DeviceLost):
            context.alloc_host(4096)
    softdriver.clear_faults()
    context.alloc_host(4096).close()


def test_faults_that_cannot_be() -> None:
    with pytest.raises(l0py.InvalidArgument, match="zeNothing"):
        softdriver.inject("zeNothing")
    with pytest.raises(l0py.InvalidArgument, match="ZE_NOTHING"):
        softdriver.inject("zeInit", result="ZE_NOTHING")
    for wrong in ({"result": 1 << 40}, {"after": -1}, {"count": -1}, {"after": 1 << 70}):
        with pytest.raises(l0py.InvalidArgument):
            softdriver.inject("zeInit", **wrong)


def test_a_memory_limit(context: l0py.Context, no_leaks: None) -> None:
    with context.alloc_host(4096):
        softdriver.memory_limit(8192)
        with pytest.raises(MemoryError):
            context.alloc_host(8192)
        context.alloc_host(4096).close()
        softdriver.memory_limit(None)
        context.alloc_host(8192).close()


@pytest.mark.parametrize("size", [0, -1, 1 << 64])
def test_memory_limits_that_cannot_be(size: int) -> None:
    with pytest.raises(l0py.InvalidArgument, match="limit"):
        softdriver.memory_limit(size)


def test_the_record(context: l0py.Context) -> None:
    softdriver.reset_record()
    with context.alloc_host(4096):
        pass
    assert softdriver.record()["calls"] == {}
    softdriver.record_calls()
    try:
        for _ in range(2000):  # more than fits into the first buffer
            context.alloc_host(4096).close()
        record = softdriver.record()
    finally:
        softdriver.record_calls(False)
    assert record["calls"]["zeMemAllocHost"] == {"count": 2000, "failures": 0}
    assert record["objects"]["context"] >= 1
    assert record["memory"]["peak"] >= 4096
    assert softdriver.executions() == []
    softdriver.reset_record()
    assert softdriver.record()["calls"] == {}
