"""No loader, no driver, no device, a function that is not there: a clear error each time, and nothing leaks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from l0py import loader

SCRIPT = """
import gc, json, os, sys
from pathlib import Path
{before}
import l0py
from l0py import handles, lib

def holdings():
    gc.collect()
    maps = Path("/proc/self/maps").read_text()
    return {{
        "fds": len(os.listdir("/proc/self/fd")),
        "libraries": sorted({{line.split()[-1] for line in maps.splitlines() if ".so" in line}}),
        "memfds": maps.count("memfd:"),
        "owned": handles.live_objects(),
    }}

def wrong():
    try:
        {wrong}
    except l0py.Error as error:
        return type(error), str(error)

first = wrong()
before = holdings()
assert all(wrong() == first for _ in range(50))
assert holdings() == before, (before, holdings())
print(json.dumps([[one.__name__ for one in first[0].__mro__], first[1]]))
"""


def outcome(python: Any, wrong: str, *, before: str = "", **environment: str | None) -> tuple[set[str], str]:
    """The error's classes and its text, after fifty more that left nothing behind."""
    done = python(SCRIPT.format(before=before, wrong=wrong), **environment)
    assert done.returncode == 0, done.stderr
    classes, text = json.loads(done.stdout)
    return set(classes), text


def test_no_loader(python: Any) -> None:
    classes, text = outcome(python, "l0py.find_device()", L0PY_LOADER="/nowhere/libze_loader.so.1")
    assert classes >= {"LoaderNotFound", "OSError"}
    assert "/nowhere/libze_loader.so.1" in text


@pytest.mark.skipif(Path("/dev/accel/accel0").exists(), reason="there may be an NPU with its driver")
def test_no_driver(python: Any) -> None:
    embedded = str(loader.embedded_path())
    environment = {"L0PY_SOFTDRIVER": "0", "L0PY_LOADER": embedded, "ZE_ENABLE_ALT_DRIVERS": None}
    classes, text = outcome(python, "l0py.find_device()", **environment)
    assert "NoDriver" in classes
    assert "L0PY_SOFTDRIVER=1" in text


def test_no_device(python: Any) -> None:
    classes, text = outcome(python, "l0py.find_device('fpga')")
    assert classes >= {"NoDevice", "LookupError"}
    assert "no fpga among Level Zero's devices" in text


def test_a_function_that_the_loader_lacks(python: Any, tmp_path: Path) -> None:
    data = loader.embedded_path().read_bytes()
    assert data.count(b"\0zeMemAllocHost\0") == 1
    old = tmp_path / "libze_loader.so.1"
    old.write_bytes(data.replace(b"\0zeMemAllocHost\0", b"\0xeMemAllocHost\0"))
    wrong = "lib.zeMemAllocHost(0, lib.ffi.NULL, 1, 1, lib.ffi.NULL)"
    classes, text = outcome(python, wrong, L0PY_LOADER=str(old))
    assert classes >= {"FunctionMissing", "NotImplementedError"}
    assert "zeMemAllocHost" in text
    assert str(old) in text
    with_context = "l0py.Context(l0py.find_device('npu')).alloc_host(4096)"
    classes, text = outcome(python, with_context, L0PY_LOADER=str(old))
    assert classes >= {"NotSupported", "NotImplementedError"}
    assert "zeMemAllocHost" in text
    assert "the driver or the loader does not have it" in text


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"L0PY_LOADER": "/nowhere/libze_loader.so.1"}, "there is no Level Zero loader"),
        ({"L0PY_SOFTDRIVER": "0", "ZE_ENABLE_ALT_DRIVERS": None}, "OpenVINO has no NPU"),
    ],
    ids=["no loader", "no driver"],
)
def test_openvino_without_an_npu(python: Any, environment: dict[str, str | None], says: str) -> None:
    pytest.importorskip("openvino")
    if Path("/dev/accel/accel0").exists():
        pytest.skip("there may be an NPU with its driver")
    before = "import openvino, ovadapter; core = openvino.Core()"
    classes, text = outcome(python, "ovadapter.NpuContext(core)", before=before, **environment)
    assert "NpuMissing" in classes
    assert says in text
