"""The other process: it draws a picture into memory of its own and hands it over as a file descriptor.

Run as `python -m ovadapter.demo.producer`, it ends as soon as the descriptor is sent: from then on the picture lives by
the receiver's descriptor alone. The rest of this module is the receiver's side.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

import l0py
from l0py import dmabuf


class ProducerError(RuntimeError):
    """The other process ended without sending a picture; it has said why on stderr."""


@dataclass(frozen=True)
class Handover:
    """What arrived: the descriptor of the picture's memory, its size in pixels (always RGB, u8), and who sent it."""

    fd: dmabuf.Fd
    height: int
    width: int
    pid: int
    source: str

    @property
    def size(self) -> int:
        """Bytes of the picture."""
        return self.height * self.width * 3


def receive(image: Path | None, *, plain: bool) -> Handover:
    """Starts the other process and takes the picture from it over a Unix socket (SCM_RIGHTS).

    `plain` asks for a memfd instead of memory of Level Zero. Raises ProducerError.
    """
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "ovadapter.demo.producer", "--socket", str(there.fileno())]
    if plain:
        command.append("--plain")
    if image is not None:
        command += ["--image", str(image.resolve())]
    with here:
        with there:
            process = subprocess.Popen(command, pass_fds=[there.fileno()], stdin=subprocess.DEVNULL, stdout=sys.stderr)
        message, fds = dmabuf.receive(here)
        status = process.wait()
    if status or not fds:
        raise ProducerError(f"the process that sends the picture failed (exit status {status})")
    return Handover(fds[0], pid=process.pid, **json.loads(message))


def load(image: Path | None) -> tuple[npt.NDArray[np.uint8], str]:
    """A picture as (height, width, 3) u8 RGB, and its name: the file's, or scikit-image's scanned page."""
    from PIL import Image

    if image is not None:
        with Image.open(image) as file:
            return np.asarray(file.convert("RGB")), image.name
    from skimage import data

    return np.asarray(Image.fromarray(data.page()).convert("RGB")), "skimage.data.page()"


def send(picture: npt.NDArray[np.uint8], source: str, connection: socket.socket, *, plain: bool) -> None:
    """Copies a picture into new memory that can be exported, and sends the memory's fd."""
    height, width, _ = picture.shape
    message = json.dumps({"height": height, "width": width, "source": source}).encode()
    if plain:
        with dmabuf.Fd(os.memfd_create("picture")) as fd:
            Path(f"/proc/self/fd/{fd.fileno()}").write_bytes(picture.tobytes())
            dmabuf.send(connection, fd, message)
        return
    with (
        l0py.Context(l0py.find_device("npu")) as context,
        context.alloc_host(picture.nbytes, exportable=True) as memory,
    ):
        memory.copy_from(picture.data)
        with memory.export() as fd:
            dmabuf.send(connection, fd, message)


def main() -> int:
    """The other process, from its command line; 0 when the picture was sent."""
    parser = argparse.ArgumentParser(prog="python -m ovadapter.demo.producer", description=__doc__)
    parser.add_argument("--socket", type=int, required=True, help="a connected Unix socket, inherited")
    parser.add_argument("--image", type=Path, help="a picture file")
    parser.add_argument("--plain", action="store_true", help="send a memfd: Level Zero is not used")
    arguments = parser.parse_args()
    try:
        picture, source = load(arguments.image)
        with socket.socket(fileno=arguments.socket) as connection:
            send(picture, source, connection, plain=arguments.plain)
    except (OSError, ImportError, RuntimeError) as error:
        print(f"producer: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
