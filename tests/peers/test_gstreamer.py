"""GStreamer in processes of its own: its frames come as memfds through `unixfdsink`, ours go through `unixfdsrc`."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import openvino as ov
import pytest
from debian_packages import gstreamer
from npu_helpers import add_model, last_pointers, nothing_leaks
from peer_helpers import COUNT, SIZE

from l0py import dmabuf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from peer_helpers import Exchange

    import l0py
    import ovadapter


# What the two elements say to each other (GStreamer 1.24 and newer): a header, a payload, and descriptors beside it.
HEADER = struct.Struct("=II")  # command, size of the payload
NEW_BUFFER, RELEASE_BUFFER, CAPS = range(3)
BUFFER = struct.Struct("=6QIBBH")  # id, 3 times, 2 offsets; flags, type of memory, memories, metas
EXTENT = struct.Struct("=QQ")  # of each memory: size, offset in its descriptor
NONE = 2**64 - 1
AUDIO = "audio/x-raw,format=F32LE,rate=48000,channels=1,layout=interleaved"


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Starts a pipeline."""
    command, environment = gstreamer(tmp_path)
    with ExitStack() as running:

        def start(pipeline: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                [*command, "--quiet", *pipeline.split()], env={**os.environ, **environment}, stdout=subprocess.PIPE
            )
            running.enter_context(process)
            running.callback(process.kill)
            return process

        yield start


class Frame(NamedTuple):
    number: int
    fd: dmabuf.Fd
    size: int
    offset: int


class Frames:
    """The receiving end of a `unixfdsink`."""

    def __init__(self, path: Path, process: subprocess.Popen[bytes]) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(30)
        while self._socket.connect_ex(str(path)):
            assert process.poll() is None
            time.sleep(0.01)

    def next(self) -> Frame:
        while True:
            header, fds, _, _ = socket.recv_fds(self._socket, HEADER.size, 4, socket.MSG_CMSG_CLOEXEC)
            command, size = HEADER.unpack(header)
            payload = self._socket.recv(size, socket.MSG_WAITALL)
            if command == NEW_BUFFER:
                (fd,) = fds
                number, *_ = BUFFER.unpack_from(payload)
                return Frame(number, dmabuf.Fd(fd), *EXTENT.unpack_from(payload, BUFFER.size))

    def release(self, frame: Frame) -> None:
        """Gives the frame back: GStreamer may use its memory again."""
        frame.fd.close()
        self._socket.sendall(HEADER.pack(RELEASE_BUFFER, 8) + struct.pack("=Q", frame.number))

    def close(self) -> None:
        self._socket.close()


class Feed:
    """The sending end of a pipeline that begins with `unixfdsrc` and ends with `fdsink`."""

    def __init__(self, path: Path, caps: str, launch: Callable[[str], subprocess.Popen[bytes]], elements: str) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
            server.listen()
            server.settimeout(30)
            self._process = launch(
                f"unixfdsrc socket-path={path} ! {elements} fdsink fd=1 sync=false enable-last-sample=false"
            )
            self._socket, _ = server.accept()
        self._socket.settimeout(30)
        text = caps.encode() + b"\0"
        self._socket.sendall(HEADER.pack(CAPS, len(text)) + text)

    def through(self, memory: l0py.Memory) -> bytes:
        """Hands the memory over, and returns what comes out at the end."""
        payload = BUFFER.pack(1, NONE, NONE, NONE, NONE, NONE, 0, 0, 1, 0) + EXTENT.pack(memory.size, 0)
        with memory.export() as fd:
            socket.send_fds(self._socket, [HEADER.pack(NEW_BUFFER, len(payload)) + payload], [fd.fileno()])
        assert self._process.stdout is not None
        out = self._process.stdout.read(memory.size)
        assert HEADER.unpack(self._socket.recv(HEADER.size, socket.MSG_WAITALL)) == (RELEASE_BUFFER, 8)
        assert self._socket.recv(8, socket.MSG_WAITALL) == struct.pack("=Q", 1)
        return out

    def close(self) -> None:
        self._socket.close()


def test_its_frames_are_inferred_where_they_lie(
    exchange: Exchange, context: l0py.Context, launch: Callable[[str], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    """Its pool has few buffers, and fills those that were given back anew: each is imported once."""
    npu = exchange.npu
    request = npu.core.compile_model(add_model([128, 64], ov.Type.u8), "NPU").create_infer_request()
    caps = "video/x-raw,format=GRAY8,width=64,height=128,framerate=20/1"
    process = launch(f"videotestsrc pattern=snow ! {caps} ! unixfdsink socket-path={tmp_path / 'frames'}")

    def run() -> None:
        pool, frames = ExitStack(), Frames(tmp_path / "frames", process)
        pictures: dict[Any, ovadapter.Tensor] = {}
        contents: dict[Any, set[bytes]] = {}
        with pool:
            while not any(len(seen) > 3 for seen in contents.values()):  # written, imported, and then written anew
                frame = frames.next()
                identity = frame.fd.identity
                if identity not in pictures:
                    memory = pool.enter_context(context.import_dma_buf(frame.fd))
                    picture = npu.remote_tensor(memory, [128, 64], "u8", offset=frame.offset)
                    pictures[identity] = pool.enter_context(picture)
                contents.setdefault(identity, set()).add(infer(frame, pictures[identity]))
                frames.release(frame)
                assert len(contents) < 100
        frames.close()

    def infer(frame: Frame, picture: ovadapter.Tensor) -> bytes:
        with npu.bind(request, {"xt": picture}) as binding:
            binding.infer()
            assert last_pointers()[0] == picture.address
            assert (binding.verdict("xt").copied, binding.verdict("xt").evidence) == (False, "driver record")
            written = os.pread(frame.fd.fileno(), frame.size, frame.offset)
            assert (request.get_tensor("yt").data.reshape(-1) == np.frombuffer(written, np.uint8) + np.uint8(1)).all()
            return written

    run()
    with nothing_leaks():
        run()


def test_it_reads_our_memory(
    exchange: Exchange, context: l0py.Context, launch: Callable[[str], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    """A pipeline that is handed one piece of memory again and again reads what the NPU wrote last."""
    feed = Feed(tmp_path / "results", AUDIO, launch, "")

    def run() -> None:
        with context.alloc_host(SIZE, exportable=True) as source, context.alloc_host(SIZE, exportable=True) as target:
            exchange(source, target, source.copy_from, lambda: np.frombuffer(feed.through(target), np.float32, COUNT))

    run()
    with nothing_leaks():
        run()
    feed.close()


def test_it_does_not_write_into_what_it_receives(
    context: l0py.Context, launch: Callable[[str], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    """To an element that works in place, a received buffer is read-only: GStreamer makes a copy for it."""
    feed = Feed(tmp_path / "results", AUDIO, launch, "volume volume=2 !")
    with context.alloc_host(SIZE, exportable=True) as memory:
        memory.numpy("f4")[:] = 3
        assert np.frombuffer(feed.through(memory), np.float32).tolist() == [6] * COUNT
        assert memory.view("f").tolist() == [3] * COUNT
    feed.close()
