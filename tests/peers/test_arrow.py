"""Arrow buffers: over l0py's memory, and as NPU memory."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from npu_helpers import nothing_leaks
from peer_helpers import COUNT, PAGE, SIZE, import_pages

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra `peers`)")

if TYPE_CHECKING:
    from peer_helpers import Exchange

    import l0py


def write_into(buffer: Any, begin: int = 0) -> Any:
    """As Arrow does it: through a stream over a mutable buffer."""

    def write(values: Any) -> None:
        with pa.FixedSizeBufferWriter(buffer) as stream:
            stream.write(bytes(begin) + values.tobytes())

    return write


def column(buffer: Any) -> Any:
    return pa.Array.from_buffers(pa.float32(), COUNT, [None, buffer])


def numbers(buffer: Any) -> Any:
    return column(buffer).to_numpy(zero_copy_only=True)


def test_our_memory_is_a_buffer(exchange: Exchange, context: l0py.Context) -> None:
    def run() -> None:
        with context.alloc_host(SIZE, exportable=True) as source, context.alloc_host(SIZE, exportable=True) as target:
            at_both_ends(source, target)

    def at_both_ends(source: l0py.Memory, target: l0py.Memory) -> None:
        x, y = pa.py_buffer(source.view()), pa.py_buffer(target.view())
        assert (x.address, y.address) == (source.address, target.address)
        assert x.is_mutable
        exchange(source, target, write_into(x), partial(numbers, y))
        table = pa.table({"result": column(y)})  # which is columns over the same memory
        assert table["result"].chunk(0).buffers()[1].address == target.address
        target.view("f")[0] = -4
        assert table["result"][0].as_py() == -4

    run()
    with nothing_leaks():
        run()


def buffer_around_pages() -> tuple[Any, int]:
    """Arrow aligns to 64 bytes: a buffer in which there are enough whole pages, and where they begin.

    A slice of it would be immutable.
    """
    buffer = pa.allocate_buffer(SIZE + PAGE)
    return buffer, -buffer.address % PAGE


def test_its_buffers_become_memory(exchange: Exchange, context: l0py.Context) -> None:
    def run() -> None:
        (x, at_x), (y, at_y) = buffer_around_pages(), buffer_around_pages()
        with (
            context.import_pointer(x.address + at_x, SIZE, owner=x) as source,
            context.import_pointer(y.address + at_y, SIZE, owner=y) as target,
        ):
            exchange(source, target, write_into(x, at_x), partial(numbers, y.slice(at_y)))

    run()
    with nothing_leaks():
        run()


def test_a_column_is_read_where_it_lies(exchange: Exchange, context: l0py.Context) -> None:
    """Columns are immutable, for the NPU too; its pages are imported to be read only."""
    values = np.arange(3 * COUNT, dtype=np.float32)
    array = pa.array(values)[COUNT : 2 * COUNT]  # a slice: an offset into the column's buffer
    (_, data), npu = array.buffers(), exchange.npu
    start = data.address + 4 * array.offset
    memory, begin = import_pages(context, start, SIZE, data, read_only=True)
    request = exchange.compiled.create_infer_request()
    with memory, npu.remote_tensor(memory, [COUNT], "f32", offset=begin, tensor_type="INPUT") as source:
        assert source.address == start
        with npu.bind(request, {"xt": source}) as binding:
            binding.infer()
            assert not binding.verdict("xt")
            assert (request.get_tensor("yt").data == values[COUNT : 2 * COUNT] + 1).all()
