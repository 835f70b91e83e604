"""The camera: a process that draws frames into buffers of its own, which it hands over once.

    python nv12_producer.py SOCKET FRAMES SLOTS SPOILED

Frame number SPOILED gets one wrong byte, so that it can be seen who notices.
"""

from __future__ import annotations

import socket
import sys

import numpy as np
from nv12_frames import FRAME_BYTES, ROWS, WIDTH, Scene, receive_index, send_index

from l0py import dmabuf


def main(connection: socket.socket, frames: int, slots: int, spoiled: int) -> None:
    scene = Scene()
    buffers = [dmabuf.memfd(FRAME_BYTES, f"frame {slot}") for slot in range(slots)]
    pictures = [np.frombuffer(buffer.mmap(), np.uint8).reshape(ROWS, WIDTH) for buffer in buffers]
    dmabuf.send(connection, buffers, b"NV12 1920x1080")
    for index in range(frames):
        if index >= slots:
            receive_index(connection)  # frame index - slots is no longer read
        with dmabuf.cpu_access(buffers[index % slots], "write"):
            scene.draw(index, pictures[index % slots])
            if index == spoiled:
                pictures[index % slots][ROWS // 2, WIDTH // 2] ^= 1
        send_index(connection, index)
    while True:  # until the other side has seen them all and closes
        receive_index(connection)


if __name__ == "__main__":
    try:
        main(socket.socket(fileno=int(sys.argv[1])), *map(int, sys.argv[2:]))
    except (EOFError, ConnectionError):
        sys.exit(0)
