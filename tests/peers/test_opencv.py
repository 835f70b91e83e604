"""OpenCV: its images in l0py's memory, the NPU's output as an image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import openvino as ov
import pytest
from npu_helpers import add_model, last_pointers, nothing_leaks

cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed (extra `peers`)")

if TYPE_CHECKING:
    import l0py
    import ovadapter

WIDTH, HEIGHT = 64, 48
SIZE = WIDTH * HEIGHT * 3


@pytest.fixture(scope="module")
def brighter(npu: ovadapter.NpuContext) -> Any:
    """A u8 image, each byte one more than before."""
    return npu.core.compile_model(add_model([1, HEIGHT, WIDTH, 3], ov.Type.u8), "NPU")


def image_in(memory: l0py.Memory) -> Any:
    return memory.numpy("u1", (HEIGHT, WIDTH, 3))


def test_opencv_draws_what_the_npu_reads(npu: ovadapter.NpuContext, context: l0py.Context, brighter: Any) -> None:
    def run() -> None:
        with context.alloc_host(SIZE, exportable=True) as source, context.alloc_host(SIZE, exportable=True) as target:
            infer(source, target)

    def infer(source: l0py.Memory, target: l0py.Memory) -> None:
        picture, result = image_in(source), image_in(target)
        request = brighter.create_infer_request()
        with npu.bind(request, {"xt": source}, {"yt": target}) as binding:
            for shade in (10, 200):
                cv2.rectangle(picture, (0, 0), (WIDTH, HEIGHT), (shade, 1, 2), cv2.FILLED)
                cv2.circle(picture, (32, 24), 10, (7, 8, shade), cv2.FILLED)
                binding.infer()
                assert [binding.tensors[name].address for name in ("xt", "yt")] == last_pointers()
                assert all(verdict.copied is False for verdict in binding.verdicts().values())
                blue, green, red = cv2.split(result)
                assert (int(blue[0, 0]), int(green[0, 0]), int(red[24, 32])) == (shade + 1, 2, shade + 1)
                assert cv2.norm(cv2.subtract(result, picture), cv2.NORM_INF) == 1

    run()
    with nothing_leaks():
        run()


def test_opencv_resizes_and_converts_into_memory(context: l0py.Context) -> None:
    """`dst` is written in place when its size and type are the result's; else OpenCV takes memory of its own."""
    frame = np.full((2 * HEIGHT, 2 * WIDTH, 3), (1, 2, 3), np.uint8)
    with context.alloc_host(SIZE) as memory:
        resized = cv2.resize(frame, (WIDTH, HEIGHT), dst=image_in(memory))
        assert resized.ctypes.data == memory.address
        cv2.cvtColor(image_in(memory), cv2.COLOR_BGR2RGB, dst=image_in(memory))
        assert memory.view()[:3].tolist() == [3, 2, 1]
        elsewhere = cv2.resize(frame, (WIDTH // 2, HEIGHT), dst=image_in(memory))
        assert elsewhere.ctypes.data != memory.address
        del resized


def test_planes_are_written_into_memory(npu: ovadapter.NpuContext, context: l0py.Context) -> None:
    """What most networks take: `dnn.blobFromImage` would make an array of its own."""
    compiled = npu.core.compile_model(add_model([1, 3, HEIGHT, WIDTH]), "NPU")
    frame = np.arange(SIZE, dtype=np.uint8).reshape(HEIGHT, WIDTH, 3)
    with (
        context.alloc_host(4 * SIZE, exportable=True) as source,
        context.alloc_host(4 * SIZE, exportable=True) as target,
    ):
        request = compiled.create_infer_request()
        with npu.bind(request, {"xt": source}, {"yt": target}) as binding:
            _write_planes(frame, source)
            binding.infer()
            assert not any(binding.verdicts().values())
        assert np.allclose(target.numpy("f4", (1, 3, HEIGHT, WIDTH)), cv2.dnn.blobFromImage(frame, 1 / 255) + 1)


def _write_planes(frame: Any, memory: l0py.Memory) -> None:
    for number, plane in enumerate(memory.numpy("f4", (3, HEIGHT, WIDTH))):
        channel = cv2.extractChannel(frame, number)
        written = cv2.normalize(
            channel, plane, alpha=1 / 255 * int(channel.max()), norm_type=cv2.NORM_INF, dtype=cv2.CV_32F
        )
        assert written.ctypes.data == memory.address + number * 4 * WIDTH * HEIGHT
