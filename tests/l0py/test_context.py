from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import l0py
from l0py import lib
from l0py._ffi import lib as c


def test_a_context_is_of_a_driver_or_a_device(device: l0py.Device, no_leaks: None) -> None:
    for where in (device, device.driver):
        with l0py.Context(where) as context:
            assert context.device == device
            assert context.driver == device.driver
            assert lib.zeContextGetStatus(context.handle) == 0
        assert context.closed
    with pytest.raises(TypeError, match="not for str"):
        l0py.Context("npu")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["host", "device", "shared"])
def test_the_three_kinds_of_memory(context: l0py.Context, device: l0py.Device, kind: str, no_leaks: None) -> None:
    with getattr(context, f"alloc_{kind}")(10000, alignment=4096) as memory:
        assert (memory.size, memory.kind, memory.origin) == (10000, kind, "allocated")
        assert memory.context is context
        assert memory.device == (None if kind == "host" else device)
        assert memory.address % 4096 == 0
        assert memory.handle == memory.address
        properties = memory.properties
        assert properties.type == kind
        assert (memory.id, memory.page_size) == (properties.id, properties.page_size)
        assert memory.range()[1] >= 10000


def test_sizes_may_be_any_index(context: l0py.Context) -> None:
    with context.alloc_host(np.uint16(300), alignment=np.int64(64)) as memory:
        assert memory.size == 300


@pytest.mark.parametrize("kind", ["host", "device", "shared"])
@pytest.mark.parametrize(
    ("size", "alignment", "error"),
    [
        (0, 0, ValueError),
        (-1, 0, ValueError),
        (1 << 62, 0, MemoryError),
        (1 << 70, 0, MemoryError),
        (4096, 3, ValueError),
        (4096, -4096, ValueError),
        (4096, 1 << 64, ValueError),
        (1.5, 0, TypeError),
        ("4096", 0, TypeError),
        (None, 0, TypeError),
        (4096, 1.0, TypeError),
    ],
)
def test_sizes_that_cannot_be(
    context: l0py.Context, kind: str, size: Any, alignment: Any, error: type[Exception], no_leaks: None
) -> None:
    with pytest.raises(error):
        getattr(context, f"alloc_{kind}")(size, alignment=alignment)


def test_a_driver_that_forgets_the_alignment(
    context: l0py.Context, monkeypatch: pytest.MonkeyPatch, no_leaks: None
) -> None:
    def forgetful(box: Any, parent: Any, desc: Any, size: int, _alignment: int) -> None:
        c.l0_alloc_host(box, parent, desc, size, 0)

    monkeypatch.setattr(l0py.context, "_alloc_host", forgetful)
    with pytest.raises(l0py.NotSupported, match="not aligned"):
        context.alloc_host(4096, alignment=1 << 40)


def test_an_interrupt_right_after_the_allocation_loses_nothing(
    context: l0py.Context, monkeypatch: pytest.MonkeyPatch, no_leaks: None
) -> None:
    def interrupted(*arguments: Any) -> None:
        c.l0_alloc_host(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(l0py.context, "_alloc_host", interrupted)
    with pytest.raises(KeyboardInterrupt):
        context.alloc_host(4096)


def test_flags_are_strings(context: l0py.Context) -> None:
    context.alloc_host(4096, flags=("cached", "write_combined")).close()
    context.alloc_host(4096, flags="uncached").close()
    context.alloc_device(4096, flags=["cached"]).close()
    with pytest.raises(l0py.InvalidArgument, match="unknown flag 'fast': there are cached"):
        context.alloc_host(4096, flags=("fast",))


def test_a_device_of_another_driver_is_refused(context: l0py.Context, device: l0py.Device) -> None:
    stranger = l0py.Device.from_handle(device.handle, l0py.Driver.from_handle(12345))
    with pytest.raises(l0py.InvalidArgument, match="another driver"):
        context.alloc_device(4096, stranger)


def test_addresses_of_others(context: l0py.Context, device: l0py.Device) -> None:
    array = np.zeros(16)
    assert context.alloc_properties(array.ctypes.data).type == "unknown"
    with pytest.raises(ValueError, match="no memory of this context"):
        context.address_range(array.ctypes.data)
    with l0py.Context(device) as other, other.alloc_host(4096) as memory:
        assert context.alloc_properties(memory.address).type == "unknown"
        assert other.alloc_properties(memory.address + 100).type == "host"


@pytest.mark.parametrize("address", [-1, 1 << 64, 1 << 70])
def test_what_is_no_address(context: l0py.Context, address: int) -> None:
    for use in (
        context.alloc_properties,
        context.address_range,
        lambda number: context.import_pointer(number * 4096, 4096),
        lambda number: l0py.Memory.from_handle(number, 1, context=context),
    ):
        with pytest.raises(l0py.InvalidArgument):
            use(address)


def test_contexts_are_borrowed(context: l0py.Context, device: l0py.Device, no_leaks: None) -> None:
    with l0py.Context.from_handle(context.handle, device) as borrowed:
        assert borrowed == context
        borrowed.alloc_host(4096).close()
    assert borrowed.closed
    context.alloc_host(4096).close()


def test_closing_gives_the_queue_of_copies_back(device: l0py.Device, no_leaks: None) -> None:
    context = l0py.Context(device)
    memory = context.alloc_host(4096)
    memory.fill(1)
    memory.close()
    context.close()
    with pytest.raises(l0py.Closed):
        context._transfers(None)
