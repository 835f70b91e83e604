from __future__ import annotations

from typing import Any

import pytest
from other_loaders import has_layer, need

import l0py


def test_drivers_are_the_same_objects_each_time() -> None:
    assert l0py.drivers() is l0py.drivers()
    driver = l0py.drivers()[0]
    assert driver.devices() is driver.devices()


def test_what_a_driver_tells(device: l0py.Device) -> None:
    driver = device.driver
    assert driver.api_version >= (1, 5)
    assert len(driver.properties.uuid) == 16
    assert driver.properties.version > 0
    assert driver.kind == "npu"
    assert driver.is_software
    assert driver.extensions["ZE_extension_external_memmap_sysmem"] == (1, 0)


def test_a_driver_is_not_made_by_hand(device: l0py.Device) -> None:
    with pytest.raises(TypeError, match="from_handle"):
        l0py.Driver()
    assert l0py.Driver.from_handle(device.driver.handle).devices() == device.driver.devices()


def test_find_device_names_what_there_is() -> None:
    assert l0py.find_device() == l0py.find_device("npu")
    with pytest.raises(l0py.NoDevice, match=r"no fpga among .*l0py software NPU \(npu\)"):
        l0py.find_device("fpga")


def test_without_a_driver_the_error_names_the_software_driver(python: Any) -> None:
    script = """
import l0py
for call in (l0py.find_device, l0py.drivers):  # the second one hits the latch of the first
    try:
        call()
    except l0py.NoDriver as error:
        assert "L0PY_SOFTDRIVER=1" in str(error) and "l0py.softdriver.enable()" in str(error), error
    else:
        raise SystemExit("no error")
result = l0py.lib.zeDriverGet(l0py.lib.ffi.new("uint32_t*"), l0py.lib.ffi.NULL)
assert result == l0py.lib.ZE_RESULT_ERROR_UNINITIALIZED, result
"""
    done = python(script, L0PY_SOFTDRIVER=None, ZE_ENABLE_ALT_DRIVERS="/nonexistent/driver.so")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("failing", ["zeInitDrivers", "zeInit", "zeDriverGet"])
def test_each_way_to_initialise_stands_in_for_the_other(python: Any, failing: str) -> None:
    need("zeInitDrivers")
    if failing == "zeDriverGet" and has_layer("ZE_ENABLE_VALIDATION_LAYER"):
        pytest.skip("this loader's validation layer knows a driver only when zeDriverGet has shown it")
    script = """
import sys, l0py
from l0py import softdriver
softdriver.inject(sys.argv[1], result="ZE_RESULT_ERROR_UNSUPPORTED_FEATURE", count=0)
print(l0py.drivers()[0].kind)
"""
    done = python(script, failing)
    assert (done.stdout.strip(), done.returncode) == ("npu", 0), done.stderr


def test_init_fails_once_for_all(python: Any) -> None:
    script = """
import l0py
from l0py import softdriver
for name in ("zeInit", "zeInitDrivers"):
    softdriver.inject(name, result="ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE", count=0)
for _ in range(2):
    try:
        l0py.drivers()
    except l0py.Error as error:
        assert "zeInit" in str(error), error
    else:
        raise SystemExit("no error")
    softdriver.clear_faults()  # too late: a failed zeInit is final
"""
    done = python(script, L0PY_SOFTDRIVER="1")  # one driver: with two, the other would do
    assert (done.returncode, done.stderr) == (0, "")


def test_threads_initialise_once(python: Any) -> None:
    script = """
import threading, l0py
from l0py import softdriver
found, start = [], threading.Barrier(8)
def look():
    start.wait()
    found.append(l0py.drivers())
threads = [threading.Thread(target=look) for _ in range(8)]
for t in threads: t.start()
for t in threads: t.join()
assert len(set(map(id, found))) == 1
"""
    assert python(script).returncode == 0


def test_kinds_that_are_none_and_kinds_that_are_not_there() -> None:
    with pytest.raises(l0py.InvalidArgument, match="'xpu' is no kind"):
        l0py.find_device("xpu")
    with pytest.raises(l0py.NoDevice) as error:
        l0py.find_device("fpga")
    assert "L0PY_SOFTDRIVER" not in str(error.value)
