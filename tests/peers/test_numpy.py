"""NumPy arrays: pages of their own in, views of l0py's memory out."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from npu_helpers import aligned_array, nothing_leaks
from peer_helpers import COUNT, SIZE, import_pages

import ovadapter

if TYPE_CHECKING:
    from collections.abc import Callable

    from peer_helpers import Exchange

    import l0py


def array_of_pages() -> Any:
    return aligned_array(SIZE).view(np.float32)


def test_its_arrays_are_bound_as_they_are(exchange: Exchange) -> None:
    def run() -> None:
        x, y = array_of_pages(), array_of_pages()
        exchange(x, y, partial(np.copyto, x), lambda: y)

    run()
    with nothing_leaks():
        run()


def test_its_arrays_become_memory(exchange: Exchange, context: l0py.Context) -> None:
    x, y = array_of_pages(), array_of_pages()
    with context.import_buffer(x) as source, context.import_array(y) as target:
        assert (source.address, target.address) == (x.ctypes.data, y.ctypes.data)
        exchange(source, target, partial(np.copyto, x), lambda: y)
        x[0], target.numpy("f4")[1] = 5, 6
        assert (source.view("f")[0], y[1]) == (5, 6)


def test_an_array_inside_its_pages(exchange: Exchange, context: l0py.Context) -> None:
    """It begins and ends where it likes, and is one of a larger array."""
    npu, many = exchange.npu, np.zeros((4, COUNT), np.float32)
    x, y = many[1], many[2]
    assert x.ctypes.data % 4096
    memory, begin = import_pages(context, x.ctypes.data, 2 * SIZE, many)
    with (
        memory,
        npu.remote_tensor(memory, [COUNT], "f32", offset=begin) as source,
        npu.remote_tensor(memory, [COUNT], "f32", offset=begin + SIZE) as target,
    ):
        assert (source.address, target.address) == (x.ctypes.data, y.ctypes.data)
        exchange(source, target, partial(np.copyto, x), lambda: y)
    assert not many[0].any()
    assert not many[3].any()


VIEWS: dict[str, Callable[[l0py.Memory], Any]] = {
    "numpy()": lambda memory: memory.numpy("f4"),
    "asarray": lambda memory: np.asarray(memory).view(np.float32),
    "frombuffer": lambda memory: np.frombuffer(memory.view(), np.float32),
    "array interface": lambda memory: np.asarray(memory.typed("<f4", (COUNT,))),
    "from_dlpack": lambda memory: np.from_dlpack(memory.typed("<f4", (COUNT,))),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("exportable", [True, False], ids=["exportable", "not exportable"])
def test_our_memory_is_an_array(
    exchange: Exchange, context: l0py.Context, view: Callable[[l0py.Memory], Any], exportable: bool
) -> None:
    with (
        context.alloc_host(SIZE, exportable=exportable) as source,
        context.alloc_host(SIZE, exportable=exportable) as target,
    ):
        exchange(source, target, partial(np.copyto, view(source)), partial(np.asarray, view(target)))


def test_an_array_that_would_be_copied_is_refused(exchange: Exchange) -> None:
    x = aligned_array(SIZE, skew=64).view(np.float32)
    with pytest.raises(ovadapter.CopyRequired, match="starts and ends on a page"):
        exchange(x, array_of_pages(), partial(np.copyto, x), lambda: x)
