"""1080p NV12 from a producer process through the NPU to a consumer process, and what happens when one is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

ov = pytest.importorskip("openvino")
np = pytest.importorskip("numpy")

from nv12_frames import FRAME_BYTES, ROWS, SUMS_BYTES, WIDTH, Scene  # noqa: E402
from nv12_pipeline import SLOTS, Report, model, run  # noqa: E402

import l0py  # noqa: E402
import ovadapter  # noqa: E402
from l0py import dmabuf, softdriver  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

FRAMES = 1000
HEIGHT = ROWS * 2 // 3


@pytest.fixture(scope="module")
def npu() -> ovadapter.NpuContext:
    return ovadapter.NpuContext()


@pytest.fixture(scope="module")
def compiled(npu: ovadapter.NpuContext) -> Any:
    one = npu.core.compile_model(model(), "NPU")
    run(npu, one, 2 * SLOTS, Report())  # what is made once and kept is made here
    return one


def children_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@pytest.fixture
def nothing_left(compiled: Any, no_leaks: None) -> Iterator[None]:
    """Neither what `no_leaks` counts nor a process."""
    before = children_of(os.getpid())
    yield
    assert children_of(os.getpid()) == before


def test_a_thousand_frames(npu: ovadapter.NpuContext, compiled: Any, nothing_left: None) -> None:
    softdriver.reset_record()
    report = Report()

    def progress(passed: int, _producer: int, _consumer: int) -> None:
        if passed % 100 == 0:
            print(f"{passed} frames", flush=True)

    run(npu, compiled, FRAMES, report, each=progress, samples=(100, FRAMES))
    print(f"{report.seconds:.1f} s, {report.holdings}")
    assert (report.frames, report.right) == (FRAMES, FRAMES)
    assert report.copied == 0

    executions = softdriver.executions()
    assert len(executions) == FRAMES
    places = [set(column) for column in zip(*(one["arguments"] for one in executions), strict=True)]
    assert [len(addresses) for addresses in places] == [SLOTS, SLOTS], "the graph ran on the slots' memory alone"

    early, late = report.holdings[100], report.holdings[FRAMES]
    assert late.fds == early.fds
    assert late.mappings - early.mappings < 5, "a thread may have made an arena"
    assert late.memory - early.memory < 2 * FRAME_BYTES / (1 << 20), "900 frames more, of which one has 3 MiB"


@pytest.mark.parametrize("victim", ["producer", "consumer"])
def test_one_is_killed_in_the_middle(npu: ovadapter.NpuContext, compiled: Any, nothing_left: None, victim: str) -> None:
    report = Report()

    def kill(passed: int, producer: int, consumer: int) -> None:
        if passed == 50:
            os.kill(producer if victim == "producer" else consumer, signal.SIGKILL)

    with pytest.raises((EOFError, ConnectionError)):
        run(npu, compiled, FRAMES, report, each=kill)
    assert 50 <= report.frames <= 50 + SLOTS, "what was on its way still passes"
    assert report.copied == 0
    if victim == "producer":
        assert report.right == report.frames, "the consumer got all that passed, and ended by itself"

    again = Report()
    run(npu, compiled, 20, again)
    assert (again.frames, again.right, again.copied) == (20, 20, 0)


def test_the_pipeline_itself_is_killed() -> None:
    """As a program of its own: what it started ends with it."""
    script = Path(__file__).with_name("nv12_pipeline.py")
    process = subprocess.Popen([sys.executable, script, "100000"], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("   100 frames; ")
        children = children_of(process.pid)
        process.kill()
    assert len(children) == 2
    deadline = time.monotonic() + 20
    while any(_runs(child) for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _runs(pid: str) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"  # nobody may be there to ask how it ended


def test_the_consumer_notices_one_wrong_byte(npu: ovadapter.NpuContext, compiled: Any, nothing_left: None) -> None:
    report = Report()
    with pytest.raises((EOFError, ConnectionError)):
        run(npu, compiled, FRAMES, report, spoiled=30)
    assert 30 < report.frames <= 30 + 2 * SLOTS
    assert report.right == 0, "it ended without a word but on stderr"


def colour_model(color_format: Any, planes: list[str]) -> Any:
    """NV12 to RGB by OpenVINO's pre-processing, then means of 40 rows at a time."""
    from openvino import opset13 as ops
    from openvino.preprocess import ColorFormat, PrePostProcessor

    frame = ops.parameter([1, HEIGHT, WIDTH, 3], ov.Type.f32)
    frame.output(0).get_tensor().set_names({"frame"})
    rows = ops.reshape(frame, ops.constant(np.array([HEIGHT // 40, 40, WIDTH, 3])), special_zero=False)
    means = ops.reduce_mean(rows, ops.constant(np.array([1])), keep_dims=False)
    means.output(0).get_tensor().set_names({"means"})
    steps = PrePostProcessor(ov.Model([means], [frame], "colours"))
    steps.input().tensor().set_element_type(ov.Type.u8).set_color_format(color_format, planes)
    steps.input().preprocess().convert_element_type(ov.Type.f32).convert_color(ColorFormat.RGB)
    return steps.build()


@pytest.mark.parametrize("planes", [[], ["y", "uv"]], ids=["one plane", "two planes"])
def test_colours_are_converted_by_the_plugin(npu: ovadapter.NpuContext, planes: list[str]) -> None:
    """Y and UV lie in one buffer; as two inputs, UV begins in the middle of a page."""
    from openvino.preprocess import ColorFormat

    color_format = ColorFormat.NV12_TWO_PLANES if planes else ColorFormat.NV12_SINGLE_PLANE
    converting = colour_model(color_format, planes)
    compiled = npu.core.compile_model(converting, "NPU")
    with (
        l0py.Context(npu.device) as context,
        dmabuf.memfd(FRAME_BYTES) as buffer,
        buffer.mmap() as mapped,
        context.alloc_host(HEIGHT // 40 * WIDTH * 3 * 4, exportable=True) as result,
    ):
        picture = np.frombuffer(mapped, np.uint8).reshape(1, ROWS, WIDTH, 1)
        Scene().draw(7, picture.reshape(ROWS, WIDTH))
        shapes = [(1, HEIGHT, WIDTH, 1), (1, HEIGHT // 2, WIDTH // 2, 2)] if planes else [picture.shape]
        names = [port.get_any_name() for port in compiled.inputs]
        starts = [0, HEIGHT * WIDTH]
        inputs = {
            name: npu.remote_tensor(buffer, shape, "u8", route="keeper", offset=start)
            for name, shape, start in zip(names, shapes, starts, strict=False)
        }
        with npu.bind(compiled.create_infer_request(), inputs, {"means": result}) as binding:
            binding.infer()
            assert not any(binding.verdicts().values())
        flat = picture.reshape(-1)
        views = [
            flat[start : start + np.prod(shape)].reshape(shape) for start, shape in zip(starts, shapes, strict=False)
        ]
        expected = npu.core.compile_model(converting, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(views)[0]
        assert (result.numpy("f4", expected.shape) == expected).all()
        for tensor in inputs.values():
            tensor.close()
        del picture, flat, views


def test_the_slots_are_as_large_as_they_say(compiled: Any) -> None:
    assert np.prod(compiled.input().shape) == FRAME_BYTES
    assert np.prod(compiled.output().shape) * 4 == SUMS_BYTES
