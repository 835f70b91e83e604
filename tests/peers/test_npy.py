"""A `.npy` file mapped by NumPy: the NPU reads the file's pages, and its results are in the file."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from npu_helpers import nothing_leaks
from peer_helpers import COUNT, import_pages

import l0py
import ovadapter

if TYPE_CHECKING:
    from pathlib import Path

    from peer_helpers import Exchange


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "x.npy", tmp_path / "y.npy"
    for path in paths:
        np.save(path, np.zeros(COUNT, np.float32))
    return paths


def memory_of(context: l0py.Context, array: Any, **options: Any) -> tuple[l0py.Memory, int]:
    """The file's pages, and where in them the array begins: after its header."""
    memory, begin = import_pages(context, array.ctypes.data, array.nbytes, array, **options)
    assert begin % 64 == 0
    assert begin
    return memory, begin


def test_files_at_both_ends(exchange: Exchange, context: l0py.Context, files: tuple[Path, Path]) -> None:
    """Written and read through mappings that the NPU knows nothing of."""
    npu = exchange.npu
    writer, reader = (np.load(path, mmap_mode="r+") for path in files)
    with nothing_leaks():
        (x, at_x), (y, at_y) = (memory_of(context, np.load(path, mmap_mode="r+")) for path in files)
        with (
            x,
            y,
            npu.remote_tensor(x, [COUNT], "f32", offset=at_x) as source,
            npu.remote_tensor(y, [COUNT], "f32", offset=at_y) as target,
        ):
            exchange(source, target, partial(np.copyto, writer), lambda: reader)
            x.view("f")[at_x // 4] = 4
            assert writer[0] == 4
        del x, y
    assert np.load(files[1])[0] == 70_001


def test_a_file_that_may_only_be_read(exchange: Exchange, context: l0py.Context, files: tuple[Path, Path]) -> None:
    npu, writer = exchange.npu, np.load(files[0], mmap_mode="r+")
    array = np.load(files[0], mmap_mode="r")
    with pytest.raises(l0py.InvalidArgument, match="read_only=True"):
        context.import_buffer(array)
    memory, begin = memory_of(context, array, read_only=True)
    with memory, context.alloc_host(array.nbytes, exportable=True) as results:
        with pytest.raises(ovadapter.TensorMismatch, match="read-only"):
            npu.remote_tensor(memory, [COUNT], "f32", offset=begin)
        with npu.remote_tensor(memory, [COUNT], "f32", offset=begin, tensor_type="INPUT") as source:
            exchange(source, results, partial(np.copyto, writer), partial(results.numpy, "f4"))
