"""PyTorch on the CPU: its tensors over l0py's memory, and its storages as NPU memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from npu_helpers import nothing_leaks
from peer_helpers import COUNT, PAGE, SIZE, import_pages

import l0py
from l0py import interop

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `peers`)")

if TYPE_CHECKING:
    from collections.abc import Callable

    from peer_helpers import Exchange


def tensor_of_pages() -> Any:
    """f32, begins and ends on a page: torch itself aligns to 64 bytes."""
    storage = torch.zeros(SIZE + PAGE, dtype=torch.uint8)
    begin = -storage.data_ptr() % PAGE
    return storage[begin : begin + SIZE].view(torch.float32)


def write_into(tensor: Any) -> Callable[[Any], None]:
    return lambda values: tensor.copy_(torch.from_numpy(values))


TENSORS: dict[str, Callable[[l0py.Memory], Any]] = {
    "from_numpy": lambda memory: torch.from_numpy(memory.numpy("f4")),
    "frombuffer": lambda memory: torch.frombuffer(memory.view(), dtype=torch.float32),
    "from_dlpack": lambda memory: torch.from_dlpack(memory.typed("<f4", (COUNT,))),
}


@pytest.mark.parametrize("view", TENSORS.values(), ids=TENSORS)
def test_our_memory_is_a_tensor(exchange: Exchange, context: l0py.Context, view: Callable[[l0py.Memory], Any]) -> None:
    with context.alloc_host(SIZE, exportable=True) as source, context.alloc_host(SIZE, exportable=True) as target:
        assert view(source).data_ptr() == source.address
        exchange(source, target, write_into(view(source)), view(target).numpy)
        assert torch.equal(view(target) - view(source), torch.ones(COUNT))


def test_its_tensors_are_bound_as_they_are(exchange: Exchange) -> None:
    def run() -> None:
        x, y = tensor_of_pages(), tensor_of_pages()
        exchange(x, y, write_into(x), lambda: y)

    run()
    with nothing_leaks():
        run()


def test_its_tensors_become_memory(exchange: Exchange, context: l0py.Context) -> None:
    x, y = tensor_of_pages(), tensor_of_pages()
    with context.import_array(x) as source, context.import_array(y) as target:
        assert (source.address, target.address) == (x.data_ptr(), y.data_ptr())
        exchange(source, target, write_into(x), lambda: y)


def test_a_layer_writes_what_the_npu_reads(exchange: Exchange, context: l0py.Context) -> None:
    """A module's result and the input of another one, where torch put them."""
    relu, values = torch.nn.ReLU(inplace=True), torch.zeros(2, COUNT)
    memory, begin = import_pages(context, values.data_ptr(), 2 * SIZE, values)

    def write(numbers: Any) -> None:
        values[0] = torch.from_numpy(numbers)
        relu(values[0])

    npu = exchange.npu
    with (
        memory,
        npu.remote_tensor(memory, [COUNT], "f32", offset=begin) as x,
        npu.remote_tensor(memory, [COUNT], "f32", offset=begin + SIZE) as y,
    ):
        exchange(x, y, write, lambda: relu(values[1]))


def test_a_lazily_negated_tensor_is_not_taken_for_its_bytes(context: l0py.Context) -> None:
    pages = tensor_of_pages().view(torch.complex64)
    pages[:] = 1 + 2j
    negated = pages.conj().imag
    assert negated.is_neg()
    with pytest.raises(l0py.NotSupported, match="resolve_neg"):
        interop.describe(negated)
    with interop.describe(negated.resolve_neg()) as found:
        assert found.format == "<f4"


def test_memory_outlives_what_made_it(context: l0py.Context) -> None:
    x = tensor_of_pages()
    address = x.data_ptr()
    memory = context.import_array(x)
    x[:] = 8
    del x
    assert memory.address == address
    assert memory.view("f")[COUNT - 1] == 8
    memory.close()
