from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np
import pytest

import l0py
from l0py import softdriver


@pytest.fixture
def memory(context: l0py.Context) -> Any:
    with context.alloc_host(4096) as made:
        yield made
        gc.collect()


def test_memory_is_not_made_by_hand() -> None:
    with pytest.raises(TypeError, match="alloc_host"):
        l0py.Memory()


def test_a_view_is_the_memory(memory: l0py.Memory) -> None:
    view = memory.view("f", (2, 8))
    assert (view.shape, view.format, view.nbytes, view.readonly) == ((2, 8), "f", 64, False)
    view[1, 7] = 2.5
    assert memory.numpy("f4")[15] == 2.5
    assert memory.view().nbytes == 4096
    assert memory.view("d").shape == (512,)
    view.release()


def test_an_array_is_the_memory(memory: l0py.Memory) -> None:
    array = memory.numpy(np.float16, (2, 3))
    assert array.ctypes.data == memory.address
    assert (array.shape, array.dtype, array.flags.writeable) == ((2, 3), np.float16, True)
    assert memory.numpy("<i8").shape == (512,)
    assert memory.numpy("u1", 7).shape == (7,)
    assert memory.numpy("u1", ()).shape == ()
    assert memory.numpy(np.dtype([("a", "u1"), ("b", "<f4")]), 3).shape == (3,)


@pytest.mark.parametrize(
    ("dtype", "shape"), [("u1", 4097), ("f8", (600,)), ("u1", (-1,)), ("u1", (-2, -2)), ("O", 1), ("2f4", 3)]
)
def test_an_array_that_does_not_fit(memory: l0py.Memory, dtype: str, shape: Any) -> None:
    with pytest.raises(l0py.InvalidArgument):
        memory.numpy(dtype, shape)


def test_views_that_cannot_be(memory: l0py.Memory) -> None:
    with pytest.raises(l0py.InvalidArgument, match="format"):
        memory.view("wrong")
    with pytest.raises(l0py.InvalidArgument, match="does not fit"):
        memory.view("B", (4097,))
    with pytest.raises(l0py.InvalidArgument, match="no elements"):
        memory.view("B", (4, 0))
    with pytest.raises(TypeError):
        memory.view("B", (1.5,))  # type: ignore[arg-type]


def test_extents_may_be_any_index(memory: l0py.Memory) -> None:
    assert memory.view("f", np.array([2, 3])).shape == (2, 3)  # type: ignore[arg-type]
    assert memory.numpy("f4", (np.int64(2), 3)).shape == (2, 3)


def test_a_size_that_is_no_multiple_of_the_element(context: l0py.Context) -> None:
    with context.alloc_host(10) as memory:
        assert memory.numpy("f4").shape == (2,)
        assert memory.view("f").shape == (2,)
        assert memory.view().nbytes == 10


@pytest.mark.skipif(sys.version_info < (3, 12), reason="classes export buffers from Python 3.12 on")
def test_memory_is_a_buffer(memory: l0py.Memory) -> None:
    assert memoryview(memory).nbytes == 4096
    np.asarray(memory)[:] = 5
    assert bytes(memory) == b"\5" * 4096


@pytest.mark.parametrize("make", [lambda m: m.view(), lambda m: m.numpy("f4"), lambda m: np.asarray(m.view())[10:20]])
def test_close_refuses_while_anything_looks(context: l0py.Context, make: Any, no_leaks: None) -> None:
    memory = context.alloc_host(4096)
    looking = make(memory)
    for _ in range(2):
        with pytest.raises(BufferError, match="alive"):
            memory.close()
    assert not memory.closed
    assert len(bytes(looking)) > 0
    del looking
    memory.close()


def test_close_refuses_while_an_array_of_a_released_view_lives(context: l0py.Context) -> None:
    memory = context.alloc_host(4096)
    view = memory.view()
    array = np.frombuffer(view, "u1")
    del view
    with pytest.raises(l0py.InUse):
        memory.close()
    del array
    memory.close()


def test_device_memory_is_not_looked_into(context: l0py.Context) -> None:
    with context.alloc_device(4096) as memory:
        for look in (memory.view, memory.numpy):
            with pytest.raises(l0py.NotSupported, match="copy_to"):
                look()
        assert not memory.closed


@pytest.mark.parametrize("source", ["host", "device", "shared"])
@pytest.mark.parametrize("target", ["host", "device", "shared"])
def test_copies_between_all_kinds(device: l0py.Device, source: str, target: str, no_leaks: None) -> None:
    data = np.arange(1000, dtype="u4")
    back = np.zeros_like(data)
    with (
        l0py.Context(device) as context,
        getattr(context, f"alloc_{source}")(4000) as first,
        getattr(context, f"alloc_{target}")(4000) as second,
    ):
        first.copy_from(data)
        second.copy_from(first)
        second.copy_to(back)
        assert (back == data).all()
        back[:] = 0
        first.fill(0)
        second.copy_to(first)
        first.copy_to(back)
        assert (back == data).all()


def test_copies_between_memory_are_the_device_s_work(context: l0py.Context) -> None:
    with context.alloc_host(4096) as first, context.alloc_host(4096) as second:
        softdriver.reset_record()
        softdriver.record_calls()
        first.copy_from(second)
        second.fill(1)
        first.copy_from(b"by the host")
        softdriver.record_calls(False)
        calls = softdriver.record()["calls"]
    assert calls["zeCommandListAppendMemoryCopy"]["count"] == 1
    assert calls["zeCommandListAppendMemoryFill"]["count"] == 1


def test_copies_with_an_offset(memory: l0py.Memory) -> None:
    memory.fill(0)
    memory.copy_from(b"abc", offset=4093)
    part = bytearray(5)
    memory.copy_to(part, offset=4091)
    assert part == b"\0\0abc"
    memory.copy_from(b"")
    memory.copy_to(bytearray())


@pytest.mark.parametrize("offset", [-1, 4096, 1 << 70])
def test_copies_that_do_not_fit(memory: l0py.Memory, context: l0py.Context, offset: int) -> None:
    with pytest.raises(l0py.InvalidArgument):
        memory.copy_from(b"ab", offset=offset)
    with pytest.raises(l0py.InvalidArgument):
        memory.copy_to(bytearray(2), offset=offset)
    with context.alloc_host(8192) as larger:
        with pytest.raises(l0py.InvalidArgument):
            memory.copy_from(larger)
        with pytest.raises(l0py.InvalidArgument):
            memory.copy_to(larger)


def test_what_cannot_be_copied(memory: l0py.Memory) -> None:
    for source in ("text", None, 12, object()):
        with pytest.raises(TypeError):
            memory.copy_from(source)  # type: ignore[arg-type]
    with pytest.raises((BufferError, ValueError)):
        memory.copy_from(np.zeros((8, 8))[:, ::2])
    with pytest.raises((BufferError, ValueError)):
        memory.copy_to(b"immutable")
    with pytest.raises(TypeError):
        memory.copy_from(b"a", offset=2.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        memory.copy_to(bytearray(1), offset=2.0)  # type: ignore[arg-type]


def test_memory_of_another_context_is_not_copied(memory: l0py.Memory, device: l0py.Device) -> None:
    with l0py.Context(device) as other, other.alloc_host(4096) as source:
        with pytest.raises(l0py.InvalidArgument, match="another context"):
            memory.copy_from(source)
        with pytest.raises(l0py.InvalidArgument, match="another context"):
            source.copy_to(memory)


@pytest.mark.parametrize("pattern", [7, b"\1\2", b"\1\2\3\4"])
def test_fill(memory: l0py.Memory, pattern: Any) -> None:
    memory.fill(pattern)
    expected = bytes([pattern]) if isinstance(pattern, int) else pattern
    assert bytes(memory.view()) == expected * (4096 // len(expected))


@pytest.mark.parametrize("pattern", [256, -1, b"", b"abc", b"12345678"])
def test_fill_patterns_that_cannot_be(memory: l0py.Memory, pattern: Any) -> None:
    with pytest.raises(l0py.InvalidArgument):
        memory.fill(pattern)


def test_fill_that_does_not_divide_the_size(context: l0py.Context) -> None:
    with context.alloc_host(10) as memory, pytest.raises(l0py.InvalidArgument, match="divide"):
        memory.fill(b"\1\2\3\4")


def test_borrowed_memory(context: l0py.Context, memory: l0py.Memory, no_leaks: None) -> None:
    with l0py.Memory.from_handle(memory.address, 100, context=context) as borrowed:
        assert (borrowed.origin, borrowed.size, borrowed.address) == ("borrowed", 100, memory.address)
        borrowed.view()[0] = 9
        assert borrowed == memory
    assert memory.view()[0] == 9
    for wrong in ({"kind": "magic"}, {"size": 0}, {"handle": 0}):
        arguments: dict[str, Any] = {"handle": memory.address, "size": 100, **wrong}
        with pytest.raises(l0py.InvalidArgument):
            l0py.Memory.from_handle(context=context, **arguments)


def test_a_part_of_an_allocation_is_not_exported_as_the_whole(
    context: l0py.Context, gpu: l0py.Device, no_leaks: None
) -> None:
    with l0py.Context(gpu) as graphics:
        for owner in (context, graphics):
            with owner.alloc_host(8192, exportable=True) as whole:
                start, rest = (
                    l0py.Memory.from_handle(address, 4096, context=owner, exportable="dma_buf")
                    for address in (whole.address, whole.address + 4096)
                )
                whole.view()[0] = 7
                with start.export() as fd, context.import_dma_buf(fd) as seen:
                    assert seen.view()[0] == 7
                with pytest.raises(l0py.InvalidArgument, match="begins inside an allocation"):
                    rest.export()
                start.close()
                rest.close()


def test_a_closed_memory_equals_none_that_took_its_place(context: l0py.Context) -> None:
    first = context.alloc_host(4096)
    first.close()
    for _ in range(20):
        second = context.alloc_host(4096)
        assert first != second
        second.close()
    assert first == first


def test_failed_copies_leave_the_context_usable(context: l0py.Context) -> None:
    with context.alloc_host(4096) as memory:
        memory.fill(1)
        for function in (
            "zeCommandListReset",
            "zeCommandListAppendMemoryFill",
            "zeCommandListClose",
            "zeFenceReset",
            "zeCommandQueueExecuteCommandLists",
            "zeFenceHostSynchronize",
        ):
            softdriver.inject(function, result="ZE_RESULT_ERROR_DEVICE_LOST")
            with pytest.raises(l0py.DeviceLost, match=function):
                memory.fill(2)
            memory.fill(3)
            assert bytes(memory.view()[:2]) == b"\3\3"


def test_an_interrupt_leaves_no_command_behind(context: l0py.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that was not run would run with the next one, on memory that may be gone."""

    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    with context.alloc_host(4096) as memory, context.alloc_host(4096) as other:
        memory.fill(1)
        other.fill(1)
        for function in ("zeCommandListClose", "zeFenceReset", "zeCommandListReset"):
            with monkeypatch.context() as patch:
                patch.setattr(l0py.lib, function, interrupted)
                with pytest.raises(KeyboardInterrupt):
                    memory.fill(2)
            memory.copy_from(bytes(4096))
            other.fill(3)
            assert bytes(other.view()) == b"\3" * 4096
            assert bytes(memory.view()) == bytes(4096)


def test_an_interrupted_copy_leaves_the_context_usable(context: l0py.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_arguments: Any) -> int:
        raise KeyboardInterrupt

    with context.alloc_host(4096) as memory:
        memory.fill(1)
        with monkeypatch.context() as patched:
            patched.setattr(l0py.lib, "zeCommandListReset", interrupt)
            with pytest.raises(KeyboardInterrupt):
                memory.fill(2)
        memory.fill(3)
        assert bytes(memory.view()[:2]) == b"\3\3"


def test_no_python_function_runs_when_a_view_ends(memory: l0py.Memory) -> None:
    """An interrupt in one would be swallowed, and the memory would never be freed."""
    view, events = memory.view(), []
    sys.setprofile(lambda frame, event, argument: events.append(event))
    try:
        del view
    finally:
        sys.setprofile(None)
    assert "call" not in events


def test_numpy_asks_for_its_bytes(context: l0py.Context) -> None:
    memory = context.alloc_host(8)
    memory.fill(3)
    seen = np.asarray(memory)
    assert seen.shape == (8,)
    assert seen.dtype == np.uint8
    assert seen.tolist() == [3] * 8
    seen[0] = 9
    assert memory.view()[0] == 9
    with pytest.raises(l0py.InUse, match="bindings"):
        memory.close()
    assert np.asarray(memory, "f4").tolist() == [9, *[3] * 7]
    copied = np.array(memory)
    copied[0] = 1
    assert seen[0] == 9
    del seen
    memory.close()
