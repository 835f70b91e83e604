from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from other_loaders import need_physical_memory

import l0py
from l0py import softdriver

if TYPE_CHECKING:
    from pathlib import Path


def test_the_files_are_there() -> None:
    assert softdriver.path() == softdriver.path("npu")
    assert softdriver.path("npu").exists()
    assert softdriver.path("gpu").exists()
    assert softdriver.loader_path().exists()
    with pytest.raises(l0py.InvalidArgument, match="'cpu' is no software driver: there are npu, gpu"):
        softdriver.path("cpu")


def test_enable_in_a_process_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZE_ENABLE_ALT_DRIVERS", "")  # which it changes: not for other tests' children
    assert softdriver.enable().is_software


def test_enable_comes_first(python: Any) -> None:
    script = "import l0py; print(l0py.softdriver.enable().kind, l0py.find_device().name)"
    done = python(script, L0PY_SOFTDRIVER=None, ZE_ENABLE_ALT_DRIVERS=None)
    assert done.stdout.strip() == "npu l0py software NPU", done.stderr


def test_the_gpus_driver_alone(python: Any) -> None:
    script = """
import l0py
driver = l0py.softdriver.enable("gpu")
print(driver.kind, driver.is_software, l0py.find_device("gpu").name, len(l0py.drivers()))
try:
    l0py.find_device("npu")
except l0py.NoDevice:
    print("no npu")
"""
    done = python(script, L0PY_SOFTDRIVER=None, ZE_ENABLE_ALT_DRIVERS=None)
    assert done.stdout == "gpu True l0py software GPU 1\nno npu\n", done.stderr


@pytest.mark.parametrize("how", ["asked", "said"])
def test_both_drivers_side_by_side(python: Any, how: str) -> None:
    enable = 'l0py.softdriver.enable("npu", "gpu")' if how == "asked" else 'l0py.find_device("npu").driver'
    script = f"""
import l0py
from l0py import softdriver
first = {enable}
print(first.kind, *sorted(driver.kind for driver in l0py.drivers()))  # loaders differ in their order
for kind in ("npu", "gpu"):  # each counts its own
    with l0py.Context(l0py.find_device(kind)) as context, context.alloc_host(4096):
        print([softdriver.record(driver=one)["memory"]["blocks"] for one in ("npu", "gpu")])
"""
    said = "npu,gpu" if how == "said" else None
    done = python(script, L0PY_SOFTDRIVER=said, ZE_ENABLE_ALT_DRIVERS=None)
    assert done.stdout == "npu gpu npu\n[1, 0]\n[0, 1]\n", done.stderr


def test_control_of_the_gpus_driver(python: Any) -> None:
    script = """
import l0py
from l0py import softdriver
softdriver.enable("gpu")
gpu = l0py.Context(l0py.find_device("gpu"))
softdriver.inject("zeMemAllocHost", result="ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY", driver="gpu")
try:
    gpu.alloc_host(4096)
except l0py.OutOfMemory:
    print("failed")
softdriver.inject("zeMemAllocHost", count=0, driver="gpu")
softdriver.clear_faults(driver="gpu")
softdriver.memory_limit(8192, driver="gpu")
try:
    gpu.alloc_host(8193)
except l0py.OutOfMemory:
    print("limited")
softdriver.memory_limit(None, driver="gpu")
softdriver.reset_record(driver="gpu")
softdriver.record_calls(driver="gpu")
gpu.alloc_host(4096).close()
softdriver.record_calls(False, driver="gpu")
print(softdriver.record(driver="gpu")["calls"]["zeMemAllocHost"], softdriver.executions(driver="gpu"))
"""
    done = python(script, L0PY_SOFTDRIVER=None, ZE_ENABLE_ALT_DRIVERS=None)
    assert done.stdout == "failed\nlimited\n{'count': 1, 'failures': 0} []\n", done.stderr


def test_the_record_counts_images_and_physical_memory(python: Any) -> None:
    need_physical_memory()
    script = """
import l0py
from l0py import lib, softdriver
softdriver.enable("gpu")
device = l0py.find_device("gpu")
context = l0py.Context(device)
memory, image = lib.ffi.new("ze_physical_mem_handle_t*"), lib.ffi.new("ze_image_handle_t*")
desc = lib.ffi.new("ze_physical_mem_desc_t*", {"stype": lib.ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, "size": 65536})
assert lib.zePhysicalMemCreate(context.handle, device.handle, desc, memory) == 0
picture = {"stype": lib.ZE_STRUCTURE_TYPE_IMAGE_DESC, "type": lib.ZE_IMAGE_TYPE_2D, "width": 4, "height": 4}
assert lib.zeImageCreate(context.handle, device.handle, lib.ffi.new("ze_image_desc_t*", picture), image) == 0
print(softdriver.record(driver="gpu")["objects"])
assert lib.zeImageDestroy(image[0]) == lib.zePhysicalMemDestroy(context.handle, memory[0]) == 0
print(softdriver.record(driver="gpu")["objects"], softdriver.record(driver="gpu")["memory"]["now"])
"""
    done = python(script, L0PY_SOFTDRIVER=None, ZE_ENABLE_ALT_DRIVERS=None)
    assert done.stdout == (
        "{'context': 1, 'device': 1, 'driver': 1, 'image': 1, 'physical_mem': 1}\n"
        "{'context': 1, 'device': 1, 'driver': 1} 0\n"
    ), done.stderr


def test_a_release_is_imitated(python: Any) -> None:
    script = """
import l0py
from l0py import softdriver
softdriver.enable("npu", "gpu")
versions = [l0py.find_device("gpu").driver.api_version]
for release in ("26.13", "22.43"):
    softdriver.imitate(release)
    versions.append(l0py.find_device("gpu").driver.api_version)
softdriver.imitate("1.32.1", driver="npu")
print(versions)
for release, driver in (("1.32.1", "gpu"), ("26.14", "npu")):
    try:
        softdriver.imitate(release, driver=driver)
    except l0py.InvalidArgument as error:
        print(error)
"""
    done = python(script, L0PY_SOFTDRIVER=None, ZE_ENABLE_ALT_DRIVERS=None)
    assert done.stdout == (
        "[(1, 15), (1, 15), (1, 3)]\n"
        "the software driver for the gpu imitates no release '1.32.1'\n"
        "the software driver for the npu imitates no release '26.14'\n"
    ), done.stderr
    script = "import l0py; print(l0py.softdriver.enable('gpu').api_version)"
    done = python(script, L0PY_SOFTDRIVER=None, ZE_ENABLE_ALT_DRIVERS=None, L0PY_SOFTGPU_RELEASE="22.43")
    assert done.stdout == "(1, 3)\n", done.stderr


def test_each_driver_writes_its_own_record(python: Any, tmp_path: Path) -> None:
    script = "import l0py; l0py.softdriver.enable('npu', 'gpu'); l0py.Context(l0py.find_device('gpu')).close()"
    files = {"L0PY_SOFTDRIVER_RECORD": tmp_path / "npu.json", "L0PY_SOFTGPU_RECORD": tmp_path / "gpu.json"}
    done = python(script, L0PY_SOFTDRIVER=None, ZE_ENABLE_ALT_DRIVERS=None, **{k: str(v) for k, v in files.items()})
    assert done.returncode == 0, done.stderr
    npu, gpu = (json.loads(path.read_text())["calls"] for path in files.values())
    assert "zeContextCreate" in gpu
    assert "zeContextCreate" not in npu


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
