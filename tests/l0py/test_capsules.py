"""`__ze_memory__`, `__ze_context__` and capsules of them: handles for those who do not import us."""

from __future__ import annotations

import ctypes
import gc
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import l0py
from l0py import interop

if TYPE_CHECKING:
    from collections.abc import Iterator

pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


USED = b"used_l0py.ze_memory"  # capsules keep the pointer


class ZeMemory(ctypes.Structure):
    """What a consumer in C declares."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in ("version", "context", "address", "size", "flags"))


class Theirs:
    """An object of another library."""

    def __init__(self, *numbers: Any, context: Any = None) -> None:
        self.numbers, self.context = numbers, context

    def __ze_memory__(self) -> Any:
        return self.numbers


class TheirContext:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __ze_context__(self) -> Any:
        return self.answer


@pytest.fixture
def context(device: l0py.Device) -> Iterator[l0py.Context]:
    """One whose queue is there already: made for the first fill, it stays until the context goes."""
    with l0py.Context(device) as made:
        with made.alloc_host(4096) as memory:
            memory.fill(0)
        yield made


@pytest.mark.parametrize(("kind", "flags"), [("host", 0), ("shared", interop.SHARED), ("device", interop.DEVICE_ONLY)])
def test_memory_tells_its_numbers(context: l0py.Context, kind: str, flags: int) -> None:
    with getattr(context, f"alloc_{kind}")(4096) as memory:
        assert memory.__ze_memory__() == (1, context.handle, memory.address, 4096, flags)
    with pytest.raises(l0py.Closed):
        memory.__ze_memory__()
    with pytest.raises(l0py.Closed):
        interop.describe(memory)


def test_read_only_memory_tells_so(context: l0py.Context, memfd: int) -> None:
    with context.import_dma_buf(memfd, read_only=True) as memory:
        assert memory.__ze_memory__()[4] == interop.READ_ONLY
        assert interop.describe(memory).read_only


def test_a_context_tells_its_handle(context: l0py.Context) -> None:
    assert context.__ze_context__() == (1, context.handle)
    assert interop.context_handle(context) == context.handle


@pytest.mark.parametrize("kind", ["host", "shared", "device"])
def test_our_memory_described(context: l0py.Context, kind: str, no_leaks: None) -> None:
    with getattr(context, f"alloc_{kind}")(5000) as memory:
        found = interop.describe(memory)
        assert (found.address, found.size, found.shape, found.format) == (memory.address, 5000, (5000,), "|u1")
        assert (found.protocol, found.context) == ("__ze_memory__", context.handle)
        assert found.host_visible is (kind != "device")
        found.release()


def test_their_memory_described(context: l0py.Context, no_leaks: None) -> None:
    with context.alloc_device(8192) as memory:
        theirs = Theirs(1, context.handle, memory.address + 4096, 4096, interop.DEVICE_ONLY)
        found = interop.describe(theirs)
        assert (found.address, found.size, found.owner) == (memory.address + 4096, 4096, theirs)
        assert (found.host_visible, found.read_only, found.context) == (False, False, context.handle)


def test_their_memory_that_is_an_array_too(context: l0py.Context) -> None:
    with context.alloc_host(4096) as memory:
        theirs: Any = Theirs(1, context.handle, memory.address, 4096, interop.READ_ONLY)
        theirs.__array_interface__ = memory.typed("<f4", (3, 5)).__array_interface__
        found = interop.describe(theirs)
        assert (found.shape, found.format, found.context, found.read_only) == ((3, 5), "<f4", context.handle, True)
        theirs.__array_interface__ = np.zeros(4).__array_interface__
        with pytest.raises(l0py.InvalidArgument, match="other memory"):
            interop.describe(theirs)


@pytest.mark.parametrize(
    "numbers",
    [
        (1, 2, 4096, 10),
        (1, 2, 4096, 10, 0, 0),
        (1, 0, 4096, 10, 0),
        (1, 2, 0, 10, 0),
        (1, 2, 4096, 0, 0),
        (1, 2, 4096, -1, 0),
        (1, 2, 1 << 64, 10, 0),
        (1, 2, (1 << 64) - 5, 10, 0),
        (1, 2.5, 4096, 10, 0),
    ],
    ids=str,
)
def test_impossible_memory(numbers: tuple[Any, ...]) -> None:
    with pytest.raises(l0py.InvalidArgument, match="__ze_memory__"):
        interop.describe(Theirs(*numbers))


def test_versions_that_nobody_knows() -> None:
    for answer in ((2, 1, 4096, 10, 0), ()):
        with pytest.raises(l0py.NotSupported, match="only 1"):
            interop.describe(Theirs(*answer))
    with pytest.raises(l0py.NotSupported, match="only 1"):
        interop.context_handle(TheirContext((2, 1)))


def test_memory_of_the_same_context_is_borrowed(context: l0py.Context, no_leaks: None) -> None:
    for kind in ("host", "shared", "device"):
        with getattr(context, f"alloc_{kind}")(5000) as memory:
            owner = Theirs(*memory.__ze_memory__())
            alive = weakref.ref(owner)
            with context.import_array(owner) as borrowed:
                del owner
                assert alive() is not None
                assert (borrowed.address, borrowed.size) == (memory.address, 5000)
                assert (borrowed.kind, borrowed.origin, borrowed.device) == (kind, "borrowed", memory.device)
                borrowed.fill(3)
            assert alive() is None
            back = bytearray(5000)
            memory.copy_to(back)
            assert back == b"\3" * 5000


def test_our_own_memory_is_not_closed_under_a_borrower(context: l0py.Context, no_leaks: None) -> None:
    memory = context.alloc_host(4096)
    with context.import_array(memory) as borrowed:
        with pytest.raises(l0py.InUse):
            memory.close()
        borrowed.view()[0] = 1
    memory.close()
    device_memory = context.alloc_device(4096)
    with context.import_array(device_memory) as borrowed:
        device_memory.close()
        borrowed.fill(1)  # it is still there


def test_memory_of_other_contexts(context: l0py.Context, device: l0py.Device, no_leaks: None) -> None:
    with l0py.Context(device) as other, other.alloc_device(4096) as memory:
        with pytest.raises(l0py.NotSupported, match="dma-buf"):
            context.import_array(memory)
        assert other.import_array(memory).close() is None


# --- capsules


def test_a_consumer_in_c_reads_memory(context: l0py.Context, no_leaks: None) -> None:
    with context.alloc_host(4096) as memory:
        memory.fill(7)
        capsule = interop.capsule(memory)
        shown = ZeMemory.from_address(pointer_of(capsule, b"l0py.ze_memory"))
        assert tuple(getattr(shown, name) for name, _ in ZeMemory._fields_) == memory.__ze_memory__()
        assert ctypes.string_at(shown.address, 3) == b"\7\7\7"
        del shown, capsule


def test_a_consumer_in_c_reads_a_context(context: l0py.Context, device: l0py.Device) -> None:
    capsule = interop.capsule(context)
    assert pointer_of(capsule, b"l0py.ze_context_handle") == context.handle
    assert interop.context_handle(capsule) == context.handle
    with (
        l0py.Context.from_handle(interop.context_handle(capsule), device, owner=capsule) as same,
        same.alloc_host(4096) as memory,
    ):
        assert memory.properties.type == "host"
        assert context.alloc_properties(memory.address).type == "host"


def test_a_capsule_described(context: l0py.Context, no_leaks: None) -> None:
    with context.alloc_device(5000) as memory:
        capsule = interop.capsule(memory)
        found = interop.describe(capsule)
        assert (found.address, found.size, found.context) == (memory.address, 5000, context.handle)
        assert (found.protocol, found.host_visible, found.owner) == ("l0py.ze_memory", False, capsule)
        with context.import_array(capsule) as borrowed:
            assert borrowed.kind == "device"


def test_memory_is_not_closed_under_a_capsule(context: l0py.Context, no_leaks: None) -> None:
    memory = context.alloc_host(4096)
    capsule = interop.capsule(memory)
    with pytest.raises(l0py.InUse):
        memory.close()
    del capsule
    memory.close()


def test_what_is_closed_lives_on_behind_its_capsule(device: l0py.Device, no_leaks: None) -> None:
    context = l0py.Context(device)
    memory = context.alloc_device(4096)
    before = l0py.handles.live_objects()
    kept = [interop.capsule(memory), interop.capsule(context)]
    memory.close()
    context.close()
    assert l0py.handles.live_objects() == before
    with pytest.raises(l0py.Closed):
        interop.capsule(context)
    kept.clear()
    after = l0py.handles.live_objects()
    assert (after["memory"], after["context"]) == (before["memory"] - 1, before["context"] - 1)


def test_a_consumer_that_renames_its_capsule(context: l0py.Context, no_leaks: None) -> None:
    """As if it owned it: nothing is lost."""
    with context.alloc_host(4096) as memory:
        capsule = interop.capsule(memory)
        ctypes.pythonapi.PyCapsule_SetName(ctypes.py_object(capsule), USED)
        with pytest.raises(l0py.InvalidArgument, match="consumed before"):
            interop.describe(capsule)
        del capsule


def test_capsules_of_others_keep_them() -> None:
    theirs = Theirs(1, 16, 4096, 10, 0)
    context = TheirContext((1, 16))
    kept = [interop.capsule(theirs), interop.capsule(context)]
    alive = [weakref.ref(theirs), weakref.ref(context)]
    del theirs, context
    gc.collect()
    assert None not in [one() for one in alive]
    kept.clear()
    assert [one() for one in alive] == [None, None]


def test_what_is_no_capsule_and_has_no_handle(context: l0py.Context) -> None:
    for wrong in (None, 5, object(), interop.capsule(Theirs(1, 16, 4096, 10, 0))):
        with pytest.raises(TypeError, match="no __ze_context__"):
            interop.context_handle(wrong)
    with pytest.raises(TypeError, match="no __ze_context__"):
        interop.capsule(object())
    with pytest.raises(l0py.InvalidArgument, match="no handle"):
        interop.context_handle(TheirContext((1, 0)))
    with pytest.raises(l0py.InvalidArgument, match="no DLPack capsule"):
        interop.describe(interop.capsule(context))
