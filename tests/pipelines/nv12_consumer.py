"""The user of the results: a process that reads them where the NPU writes them, and checks every one.

    python nv12_consumer.py SOCKET SLOTS

Prints how many results were right. Exit status 1: one was wrong.
"""

from __future__ import annotations

import socket
import sys

import numpy as np
from nv12_frames import SUMS, Scene, receive_index, send_index

from l0py import dmabuf


def main(connection: socket.socket, slots: int) -> int:
    scene = Scene()
    sums = scene.sums()
    _, buffers = dmabuf.receive(connection, slots)
    results = [np.frombuffer(buffer.mmap(access="read"), np.float32)[: SUMS[0] * SUMS[1]] for buffer in buffers]
    right = 0
    while True:
        try:
            index = receive_index(connection)
        except (EOFError, ConnectionError):
            print(right)
            return 0
        with dmabuf.cpu_access(buffers[index % slots], "read"):
            if not scene.is_result(index, results[index % slots].reshape(SUMS), sums):
                print(f"result {index} is wrong", file=sys.stderr)
                return 1
        right += 1
        send_index(connection, index)


if __name__ == "__main__":
    sys.exit(main(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])))
