"""What the processes agree on: how frames look, what the model makes of them, and what is said over the sockets."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import socket

WIDTH, HEIGHT = 1920, 1080
ROWS = HEIGHT * 3 // 2
"""Of an NV12 picture: all of Y, then U and V in turns at half the height."""
FRAME_BYTES = ROWS * WIDTH

BLOCK = 60
"""The model adds up so many rows, column by column."""
SUMS = (ROWS // BLOCK, WIDTH)
SUMS_BYTES = SUMS[0] * SUMS[1] * 4

Frame = npt.NDArray[np.uint8]

_PICTURES = 16
_INDEX = struct.Struct("=I")


def send_index(connection: socket.socket, index: int) -> None:
    """Frame or result number `index` is ready, or done with."""
    connection.sendall(_INDEX.pack(index))


def receive_index(connection: socket.socket) -> int:
    """Raises EOFError when the other side is gone."""
    message = connection.recv(_INDEX.size)
    if len(message) < _INDEX.size:
        raise EOFError("the other side is gone")
    return int(_INDEX.unpack(message)[0])


class Scene:
    """A film of noise: each frame differs in all of its bytes from those around it."""

    def __init__(self) -> None:
        self._pictures = np.random.default_rng(2026).integers(0, 256, (_PICTURES, ROWS, WIDTH), np.uint8)

    def draw(self, index: int, frame: Frame) -> None:
        """Frame number `index`; its first row is its own."""
        np.copyto(frame, self._pictures[index % _PICTURES])
        frame[0] = self._first_row(index)

    def sums(self) -> list[npt.NDArray[np.float32]]:
        """What the model makes of the pictures, the frames' own first rows aside."""
        pictures = self._pictures.astype(np.float32)
        pictures[:, 0] = 0
        return list(pictures.reshape(_PICTURES, SUMS[0], BLOCK, WIDTH).sum(2))

    def is_result(self, index: int, result: npt.NDArray[np.float32], sums: list[npt.NDArray[np.float32]]) -> bool:
        """Whether a result is that of frame number `index`: every sum, exactly."""
        expected = sums[index % _PICTURES].copy()
        expected[0] += self._first_row(index)
        return bool((result == expected).all())

    @staticmethod
    def _first_row(index: int) -> npt.NDArray[Any]:
        return np.random.default_rng(index).integers(0, 256, WIDTH, np.uint8)
