from __future__ import annotations

from typing import Any

import pytest
from other_loaders import wraps_handles

import l0py
from l0py import lib


def test_handles_and_addresses_are_ints(device: l0py.Device, no_leaks: None) -> None:
    ffi = lib.ffi
    context = ffi.new("ze_context_handle_t*")
    desc = ffi.new("ze_context_desc_t*", {"stype": lib.ZE_STRUCTURE_TYPE_CONTEXT_DESC})
    assert lib.zeContextCreate(device.driver.handle, desc, context) == lib.ZE_RESULT_SUCCESS
    host = ffi.new("ze_host_mem_alloc_desc_t*", {"stype": lib.ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC})
    pointer = ffi.new("uintptr_t*")
    assert lib.zeMemAllocHost(context[0], host, 4096, 0, pointer) == 0
    assert isinstance(context[0], int)
    assert isinstance(pointer[0], int)
    assert lib.zeMemFree(context[0], pointer[0]) == 0
    assert lib.zeMemFree(context[0], pointer[0]) == lib.ZE_RESULT_ERROR_INVALID_ARGUMENT
    assert lib.zeContextDestroy(context[0]) == 0


def test_a_null_handle_is_refused() -> None:
    if wraps_handles():
        pytest.skip("a loader that wraps handles may look into null ones")
    assert lib.zeContextDestroy(0) == lib.ZE_RESULT_ERROR_INVALID_NULL_HANDLE


def test_has_and_what_is_no_name() -> None:
    assert lib.has("zeInit") is True
    with pytest.raises(AttributeError, match="zeNothing"):
        lib.has("zeNothing")
    with pytest.raises(AttributeError):
        lib.zeNothing  # noqa: B018
    assert "zeMemAllocHost" in dir(lib)
    assert "ZE_RESULT_SUCCESS" in dir(lib)


def test_address() -> None:
    data = lib.ffi.new("char[4]")
    assert lib.address(data) == int(lib.ffi.cast("uintptr_t", data))
    buffer = bytearray(8)
    assert lib.address(lib.ffi.from_buffer(buffer)) > 0


def test_constants_need_no_loader_and_importing_opens_none(python: Any) -> None:
    script = """
import sys
import l0py
from l0py import lib, loader
assert lib.ZE_RESULT_ERROR_DEVICE_LOST == 0x70000001
assert loader._bound is None
assert "numpy" not in sys.modules and "openvino" not in sys.modules
assert "ze_loader" not in open("/proc/self/maps").read()
try:
    lib.zeInit
except l0py.LoaderNotFound as error:
    assert "L0PY_LOADER=/nonexistent" in str(error), error
else:
    raise SystemExit("no error")
"""
    done = python(script, L0PY_LOADER="/nonexistent")
    assert (done.returncode, done.stderr) == (0, "")
