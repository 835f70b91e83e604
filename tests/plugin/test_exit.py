"""Processes that end at a bad moment, or fork: none hangs, none crashes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import RunPython

HERE = str(Path(__file__).parent)

BEGIN = f"""
import os, sys, threading, time
sys.path.insert(0, {HERE!r})
import numpy as np
import openvino as ov
import l0py
from plugin_helpers import random_inputs, relu_model, slow_model, value_of

l0py.find_device("npu")
core = ov.Core()

def request_of(model, device="NPU"):
    request = core.compile_model(model, device).create_infer_request()
    request.set_input_tensor(random_inputs(model)[0])
    return request
"""

# OpenVINO itself hangs in a forked child that drops a request, even one of the CPU plugin's: the children here leave as
# those of multiprocessing do. One that hangs is ended by its alarm, and seen as that.
CHILD = """
import signal
request = request_of(relu_model())
request.infer()
def in_child(work):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        status = work()
        os._exit(status or 0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""

ENDS = {
    "requests in flight": """
compiled = core.compile_model(slow_model(), "NPU")
requests = [compiled.create_infer_request() for _ in range(3)]
for request in requests:
    request.start_async()
""",
    "a queue in flight": """
queue = ov.AsyncInferQueue(core.compile_model(slow_model(), "NPU"), 3)
for number in range(3):
    queue.start_async({}, number)
""",
    "sys.exit in flight": """
request = request_of(slow_model())
request.start_async()
sys.exit(0)
""",
    "live tensors": """
npu = core.get_default_context("NPU")
request = request_of(relu_model())
fd = os.memfd_create("frame")
os.ftruncate(fd, 1 << 16)
shared = {"MEM_TYPE": "SHARED_BUF", "MEM_HANDLE": hex(fd), "TENSOR_TYPE": "INPUT"}
tensors = [
    npu.create_host_tensor(ov.Type.f32, ov.Shape([1000])),
    npu.create_tensor(ov.Type.f32, ov.Shape([1, 3, 8, 8]), {}),
    npu.create_tensor(ov.Type.f32, ov.Shape([1, 3, 8, 8]), shared),
]
request.set_tensor("x", tensors[2])
request.infer()
views = [tensors[0].data, request.get_output_tensor().data]
memory = l0py.Context(l0py.find_device("npu")).alloc_host(1 << 20)
""",
    "the core gone first": """
request = request_of(slow_model())
del core
request.start_async()
""",
    "an error on the way": """
request = request_of(relu_model())
from l0py import softdriver
softdriver.inject("zeCommandQueueExecuteCommandLists", result="ZE_RESULT_ERROR_DEVICE_LOST", count=0)
request.start_async()
try:
    request.wait()
except RuntimeError:
    pass
""",
}


@pytest.mark.parametrize("end", ENDS)
def test_exit(python: RunPython, end: str) -> None:
    done = python(BEGIN + ENDS[end] + "\nprint('end', flush=True)" * ("sys.exit" not in end))
    assert (done.returncode, done.stderr) == (0, "")
    assert ("end\n" in done.stdout) == ("sys.exit" not in end)


def test_uncaught_exception_in_flight(python: RunPython) -> None:
    done = python(BEGIN + "request = request_of(slow_model())\nrequest.start_async()\nraise SystemExit('stop')")
    assert done.returncode == 1
    assert done.stderr == "stop\n"


def test_interrupt(tmp_path: Path) -> None:
    """Ctrl-C in the middle of inferences."""
    script = (
        BEGIN
        + """
request = request_of(slow_model())
print("ready", flush=True)
while True:
    request.infer()
"""
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in errors


FORKS = {
    "leaves at once": "pass",
    "looks at its results": "request.get_output_tensor().data.sum()",
    "asks for properties": "core.get_property('NPU', 'NPU_DRIVER_VERSION')",
    "releases memory": "compiled.release_memory()",
}


def in_a_fork(python: RunPython, child: str) -> subprocess.CompletedProcess[str]:
    """Runs `child` (statements) in a fork of a process that has inferred, which infers again afterwards."""
    script = f"""
compiled = core.compile_model(relu_model(), "NPU")
exported = compiled.export_model()
wanted = request_of(relu_model(), "CPU")
wanted.infer()
def work():
    {child}
assert in_child(work) == 0
request.infer()
assert value_of(request.get_output_tensor()) == value_of(wanted.get_output_tensor())
"""
    return python(BEGIN + CHILD + script)


@pytest.mark.parametrize("child", FORKS)
def test_fork(python: RunPython, child: str) -> None:
    """A child comes to its end, and the parent goes on as before."""
    done = in_a_fork(python, FORKS[child])
    assert (done.returncode, done.stderr) == (0, "")


CALLS = {
    "infer": "request.infer()",
    "compile": "core.compile_model(relu_model(), 'NPU')",
    "compile and infer": "request_of(relu_model()).infer()",
    "import": "core.import_model(exported, 'NPU')",
    "query": "core.query_model(relu_model(), 'NPU')",
}


@pytest.mark.parametrize("call", CALLS)
def test_the_npu_in_a_forked_child(python: RunPython, call: str) -> None:
    """The threads that compute stayed with the parent: it says so, and does not hang now and then."""
    child = f"""
    try:
        {CALLS[call]}
    except RuntimeError as error:
        return 0 if "ZE_RESULT_ERROR_UNINITIALIZED" in str(error) else print(error, file=sys.stderr, flush=True)
    return 3"""
    done = in_a_fork(python, child)
    assert (done.returncode, done.stderr) == (0, "")


def test_fork_in_flight(python: RunPython) -> None:
    """The child does not wait for an inference of its parent's."""
    script = """
slow = request_of(slow_model())
slow.start_async()
assert in_child(lambda: request.get_output_tensor().data.sum() > 1e9) == 0
slow.wait()
"""
    done = python(BEGIN + CHILD + script)
    assert (done.returncode, done.stderr) == (0, "")


def test_forked_before_the_first_use(python: RunPython) -> None:
    """Both processes have an NPU of their own."""
    script = """
request = request_of(relu_model())
request.infer()
print(l0py.find_device("npu").name, flush=True)
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    done = python("import os\nchild = os.fork()\n" + BEGIN + script)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "l0py software NPU\n" * 2)
