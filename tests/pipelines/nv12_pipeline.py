"""Frames from one process through the NPU to another: 1080p NV12, and nobody copies anything.

    L0PY_SOFTDRIVER=1 python tests/pipelines/nv12_pipeline.py [FRAMES]

The producer's buffers are imported for the NPU, the results' memory is exported to the consumer; both once. After that
only frame numbers go over the sockets.
"""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import openvino as ov
from nv12_frames import BLOCK, FRAME_BYTES, ROWS, SUMS, SUMS_BYTES, WIDTH, receive_index, send_index

import l0py
import ovadapter
from l0py import dmabuf

if TYPE_CHECKING:
    from collections.abc import Callable

SLOTS = 4


def model() -> ov.Model:
    """Sums of 60 rows at a time: u8 1x1620x1920x1 in, f32 27x1920 out, each of which all of its bytes make up."""
    from openvino import opset13 as ops

    frame = ops.parameter([1, ROWS, WIDTH, 1], ov.Type.u8)
    frame.output(0).get_tensor().set_names({"frame"})
    rows = ops.reshape(frame, ops.constant(np.array([SUMS[0], BLOCK, WIDTH])), special_zero=False)
    sums = ops.reduce_sum(ops.convert(rows, "f32"), ops.constant(np.array([1])), keep_dims=False)
    sums.output(0).get_tensor().set_names({"sums"})
    return ov.Model([sums], [frame], "sums of rows")


@dataclass(frozen=True)
class Holdings:
    """What this process holds; `memory` is what it has in RAM, in MiB."""

    fds: int
    mappings: int
    memory: float

    @classmethod
    def now(cls) -> Holdings:
        gc.collect()
        proc = Path("/proc/self")
        pages = int((proc / "statm").read_text().split()[1])
        return cls(
            sum(1 for _ in (proc / "fd").iterdir()),
            len((proc / "maps").read_text().splitlines()),
            pages * os.sysconf("SC_PAGESIZE") / (1 << 20),
        )


@dataclass
class Report:
    """How it went: frames that passed, those of them that were copied, and what was held after so many frames."""

    frames: int = 0
    copied: int = 0
    right: int = 0
    seconds: float = 0.0
    holdings: dict[int, Holdings] = field(default_factory=dict)

    def note(self, printed: str) -> None:
        """What the consumer says at its end: how many results were right. Killed, it says nothing."""
        self.right = int(printed or 0)


class Child:
    """A process of the pipeline and the socket to it. It ends when the socket is closed."""

    def __init__(self, script: str, *arguments: object) -> None:
        self.connection, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            command = [sys.executable, str(Path(__file__).with_name(script)), str(there.fileno()), *map(str, arguments)]
            self._process = subprocess.Popen(command, pass_fds=[there.fileno()], stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid

    def close(self) -> str:
        """Ends it, by force if it has to be; what it has printed."""
        self.connection.close()
        with self._process as process:
            try:
                return process.communicate(timeout=10)[0]
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def run(
    npu: ovadapter.NpuContext,
    compiled: ov.CompiledModel,
    frames: int,
    report: Report,
    *,
    each: Callable[[int, int, int], None] = lambda frames, producer, consumer: None,
    samples: tuple[int, ...] = (),
    spoiled: int = -1,
) -> None:
    """Lets so many frames pass, and tells in `report` how it went.

    `each` is called after each of them with their number and the process ids of both sides. Frame number `spoiled` gets
    one wrong byte. Raises EOFError or ConnectionError when one of the processes ends before that; nothing is left
    behind then.
    """
    begin = time.perf_counter()
    with ExitStack() as undo:
        context = undo.enter_context(l0py.Context(npu.device))
        producer = Child("nv12_producer.py", frames, SLOTS, spoiled)
        undo.callback(producer.close)
        consumer = Child("nv12_consumer.py", SLOTS)
        undo.callback(lambda: report.note(consumer.close()))
        bindings = _bind(npu, compiled, context, producer.connection, consumer.connection, undo)
        for index in range(frames + 1):
            if index < frames:
                if receive_index(producer.connection) != index:
                    raise ValueError(f"the producer lost frame {index}")
                if index >= SLOTS:
                    receive_index(consumer.connection)  # result index - SLOTS was read
                bindings[index % SLOTS].start_async()
            if index > 0:  # while this frame runs, the one before it ends
                finished = bindings[(index - 1) % SLOTS]
                finished.wait()
                report.copied += any(finished.verdicts().values())
                report.frames += 1
                send_index(consumer.connection, index - 1)
                send_index(producer.connection, index - 1)
                each(report.frames, producer.pid, consumer.pid)
            if index in samples:
                report.holdings[index] = Holdings.now()
        for _ in range(min(SLOTS, frames)):
            receive_index(consumer.connection)
    report.seconds = time.perf_counter() - begin


def _bind(
    npu: ovadapter.NpuContext,
    compiled: ov.CompiledModel,
    context: l0py.Context,
    frames_in: socket.socket,
    results_out: socket.socket,
    undo: ExitStack,
) -> list[Any]:
    """A request per slot: it reads the producer's buffer and writes memory that the consumer sees."""
    message, buffers = dmabuf.receive(frames_in, SLOTS)
    for buffer in buffers:
        undo.enter_context(buffer)
    if len(buffers) != SLOTS or any(buffer.size != FRAME_BYTES for buffer in buffers):
        raise EOFError(f"no buffers came from the producer: {message!r}")
    results = [undo.enter_context(context.alloc_host(SUMS_BYTES, exportable=True)) for _ in buffers]
    with ExitStack() as exported:
        dmabuf.send(results_out, [exported.enter_context(result.export()) for result in results])
    return [
        undo.enter_context(npu.bind(compiled.create_infer_request(), {"frame": buffer}, {"sums": result}))
        for buffer, result in zip(buffers, results, strict=True)
    ]


def main(frames: int) -> int:
    npu = ovadapter.NpuContext()
    compiled = npu.core.compile_model(model(), "NPU")

    def progress(passed: int, _producer: int, _consumer: int) -> None:
        if passed % 100 == 0 or passed == frames:
            held = Holdings.now()
            print(f"{passed:6} frames; {held.fds} fds, {held.mappings} mappings, {held.memory:.0f} MiB", flush=True)

    report = Report()
    run(npu, compiled, frames, report, each=progress)
    print(f"{npu.device.name}: {report.frames} frames in {report.seconds:.1f} s")
    print(f"copied: {report.copied}; results that the consumer found right: {report.right}")
    return 0 if (report.copied, report.right) == (0, frames) else 1


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
