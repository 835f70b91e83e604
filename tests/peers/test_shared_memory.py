"""`multiprocessing.shared_memory`: another process writes what the NPU reads, and reads what it wrote."""

from __future__ import annotations

import multiprocessing
from multiprocessing.shared_memory import SharedMemory
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from npu_helpers import nothing_leaks
from peer_helpers import COUNT, SIZE, read_shared_memory, write_shared_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peer_helpers import Exchange

    import l0py


@pytest.fixture(scope="module")
def other_process() -> Iterator[Any]:
    """A pool of one process that shares nothing with this one but what it is told the name of."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        yield pool


@pytest.fixture
def segments() -> Iterator[tuple[SharedMemory, SharedMemory]]:
    made = SharedMemory(create=True, size=SIZE), SharedMemory(create=True, size=SIZE)
    yield made
    for segment in made:
        segment.close()
        segment.unlink()


def test_another_process_at_both_ends(
    exchange: Exchange, other_process: Any, segments: tuple[SharedMemory, SharedMemory]
) -> None:
    first, second = segments
    x, y = (np.frombuffer(segment.buf, np.float32, COUNT) for segment in segments)
    exchange(
        x,
        y,
        lambda values: other_process.apply(write_shared_memory, (first.name, values)),
        lambda: other_process.apply(read_shared_memory, (second.name,)),
    )


def test_segments_become_memory(
    exchange: Exchange, context: l0py.Context, other_process: Any, segments: tuple[SharedMemory, SharedMemory]
) -> None:
    first, second = segments
    with nothing_leaks(), context.import_buffer(first.buf) as source, context.import_buffer(second.buf) as target:
        exchange(
            source,
            target,
            lambda values: other_process.apply(write_shared_memory, (first.name, values)),
            lambda: other_process.apply(read_shared_memory, (second.name,)),
        )
        source.view("f")[0] = 12  # and the other way: what is written here is there
        assert other_process.apply(read_shared_memory, (first.name,))[0] == 12


def test_a_segment_that_is_memory_cannot_be_closed(
    context: l0py.Context, segments: tuple[SharedMemory, SharedMemory]
) -> None:
    with context.import_buffer(segments[0].buf) as memory:
        with pytest.raises(BufferError):
            segments[0].close()
        memory.view()[0] = 1


def test_an_unlinked_segment_stays_memory(context: l0py.Context) -> None:
    segment = SharedMemory(create=True, size=SIZE)
    with context.import_buffer(segment.buf) as memory:
        segment.unlink()
        memory.view()[5] = 9
        assert segment.buf[5] == 9
    segment.close()
