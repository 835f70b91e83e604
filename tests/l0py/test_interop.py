from __future__ import annotations

import array
import ctypes
import mmap
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import l0py
from l0py import formats, interop, softdriver

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = mmap.PAGESIZE


def pages(count: int = 2) -> Any:
    """An array that begins and ends on pages."""
    return np.frombuffer(mmap.mmap(-1, count * PAGE), "u1")


class Has:
    """An object with one protocol's attribute."""

    def __init__(self, protocol: str, value: Any, **more: Any) -> None:
        self.__dict__.update({protocol: value, **more})


def interface(**changes: Any) -> Has:
    """An `__array_interface__` of real bytes, with something changed."""
    bytes_ = (ctypes.c_char * 4096)()
    told = {"version": 3, "shape": (2, 3), "typestr": "<f4", "data": (ctypes.addressof(bytes_), False), **changes}
    return Has("__array_interface__", {name: value for name, value in told.items() if value is not ...}, bytes_=bytes_)


def sycl(**changes: Any) -> Has:
    """A `__sycl_usm_array_interface__`; attributes of the object begin with an underscore."""
    bytes_ = mmap.mmap(-1, 2 * PAGE)
    address = np.frombuffer(bytes_, "u1").ctypes.data
    told = {
        "version": 1,
        "shape": (2 * PAGE,),
        "typestr": "|u1",
        "data": (address, True),
        "strides": None,
        "offset": 0,
        "syclobj": object(),
        **{name: value for name, value in changes.items() if not name.startswith("_")},
    }
    more = {name[1:]: value for name, value in changes.items() if name.startswith("_")}
    return Has("__sycl_usm_array_interface__", told, bytes_=bytes_, **more)


# --- the buffer protocol


@pytest.mark.parametrize(
    ("make", "shape", "text"),
    [
        (lambda: bytearray(12), (12,), "|u1"),
        (lambda: array.array("d", [1.0, 2.0]), (2,), "<f8"),
        (lambda: (ctypes.c_int16 * 3 * 2)(), (2, 3), "<i2"),
        (lambda: memoryview(bytearray(16)).cast("f", (2, 2)), (2, 2), "<f4"),
        (lambda: np.zeros((2, 3), "c8"), (2, 3), "<c8"),
        (lambda: np.zeros(3, ">u4"), (3,), ">u4"),
        (lambda: np.zeros((), "?"), (), "|b1"),
        (lambda: np.zeros((0, 4), "f2"), (0, 4), "<f2"),
        (lambda: np.zeros(2, "S5"), (2,), "|S5"),
        (lambda: np.zeros(2, [("a", "u1"), ("b", "<f4")]), (2,), "|V5"),
        (lambda: mmap.mmap(-1, PAGE), (PAGE,), "|u1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_buffers(make: Any, shape: tuple[int, ...], text: str) -> None:
    obj = make()
    found = interop.describe(obj)
    item = formats.parse(text)[1]
    assert (found.shape, found.format, found.strides, found.protocol) == (shape, text, None, "buffer")
    assert (found.size, found.host_visible, found.context) == (int(np.prod(shape)) * item, True, 0)
    if isinstance(obj, np.ndarray):
        assert found.address == obj.ctypes.data


def test_a_buffer_is_the_memory_itself() -> None:
    data = bytearray(b"abc")
    with interop.describe(data) as found:
        ctypes.memmove(found.address, b"x", 1)
        assert data == b"xbc"
        with pytest.raises(BufferError):
            data.append(1)  # it cannot move away
    data.append(1)
    assert interop.describe(b"constant").read_only
    assert not interop.describe(bytearray(1)).read_only


def test_buffers_with_gaps() -> None:
    numbers = np.arange(24, dtype="<i4").reshape(4, 6)
    every_second = interop.describe(memoryview(numbers.reshape(24))[::2])
    assert (every_second.address, every_second.strides, every_second.size) == (numbers.ctypes.data, (8,), 48)
    backwards = interop.describe(memoryview(numbers.reshape(24))[::-1])
    assert (backwards.address, backwards.strides) == (numbers.ctypes.data + 92, (-4,))
    column = interop.describe(numbers[1:, 2:4])
    assert (column.address, column.shape, column.strides) == (numbers.ctypes.data + 32, (3, 2), (24, 4))
    assert column.protocol == "__array_interface__"
    with pytest.raises(l0py.InvalidArgument, match="does not tell where it begins"):
        interop.describe(memoryview(numbers[:, ::2]))


def test_arrays_that_are_no_buffers() -> None:
    found = interop.describe(np.zeros(3, "M8[ns]"))
    assert (found.format, found.size, found.protocol) == ("<M8[ns]", 24, "__array_interface__")
    for dtype in (object, [("a", "u1"), ("b", object)]):
        with pytest.raises(l0py.InvalidArgument, match="Python objects"):
            interop.describe(np.zeros(3, dtype))
    assert interop.describe(np.zeros(3, [("O", "u1")])).format == "|V1"
    released = memoryview(b"abc")
    released.release()
    with pytest.raises(l0py.InvalidArgument, match="released"):
        interop.describe(released)


@pytest.mark.parametrize("obj", [None, 5, "text", object(), [1, 2], {}, int], ids=str)
def test_what_shares_nothing(obj: Any) -> None:
    with pytest.raises(TypeError, match="shares no memory"):
        interop.describe(obj)


# --- __array_interface__


def test_array_interfaces() -> None:
    obj = interface()
    found = interop.describe(obj)
    assert found == (ctypes.addressof(obj.bytes_), 24, (2, 3), "<f4", None, False, obj, found.protocol, True, 0)
    assert interop.describe(interface(data=(4096, True))).read_only
    assert interop.describe(interface(strides=(12, 4))).strides is None
    assert interop.describe(interface(strides=(4, 8))).strides == (4, 8)
    assert interop.describe(interface(shape=(0, 3), data=(0, False))).size == 0


def test_array_interfaces_of_a_buffer() -> None:
    data = bytearray(32)
    found = interop.describe(interface(data=data, offset=8))
    assert found.address == interop.describe(data).address + 8
    assert interop.describe(interface(data=bytes(24))).read_only
    with pytest.raises(l0py.InvalidArgument, match="other bytes than the 32"):
        interop.describe(interface(data=data, offset=9))
    with pytest.raises(l0py.InvalidArgument, match="other bytes"):
        interop.describe(interface(data=data, offset=-1))
    with pytest.raises(l0py.InvalidArgument, match="other bytes"):
        interop.describe(interface(data=data, strides=(4, 8)))
    del found
    data.append(1)  # refused ones hold nothing


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": (-1, 3)},
        {"shape": (1 << 40, 1 << 40)},
        {"shape": 3},
        {"shape": (2.0, 3)},
        {"shape": ...},
        {"typestr": "O8"},
        {"typestr": None},
        {"data": (0, False)},
        {"data": (-4096, False)},
        {"data": ((1 << 64) - 8, False)},
        {"data": (4096,)},
        {"data": ("4096", False)},
        {"data": 4096},
        {"data": ...},
        {"strides": (4,)},
        {"strides": (1 << 64, 4)},
        {"strides": (-(1 << 62), 4)},
        {"mask": np.ones((2, 3))},
    ],
    ids=str,
)
def test_impossible_array_interfaces(changes: dict[str, Any]) -> None:
    with pytest.raises(l0py.InvalidArgument, match=r"__array_interface__|format|mask"):
        interop.describe(interface(**changes))


def test_an_array_interface_that_is_no_dict() -> None:
    with pytest.raises(l0py.InvalidArgument, match="no dict"):
        interop.describe(Has("__array_interface__", (2, 3)))


def test_numpy_sees_typed_memory(context: l0py.Context, no_leaks: None) -> None:
    memory = context.alloc_host(4096)
    typed = memory.typed(">i2", (3, 4))
    seen = np.asarray(typed)
    assert (seen.ctypes.data, seen.shape, seen.dtype.str) == (memory.address, (3, 4), ">i2")
    seen[0, 0] = 0x0102
    assert bytes(memory.view()[:2]) == b"\1\2"
    assert np.asarray(memory.typed("bfloat16", (8,))).dtype == np.dtype("V2")
    assert repr(typed).startswith("<l0py.Typed >i2 (3, 4) at ")
    del typed
    with pytest.raises(l0py.InUse):
        memory.close()
    del seen
    memory.close()


def test_numpy_may_not_write_what_is_read_only(context: l0py.Context, memfd: int) -> None:
    with context.import_dma_buf(memfd, read_only=True) as memory:
        assert not np.asarray(memory).flags.writeable
        assert not np.asarray(memory.typed("<f4")).flags.writeable


# --- __sycl_usm_array_interface__


def test_sycl_s_memory() -> None:
    obj = sycl(_usm_type="shared")
    found = interop.describe(obj)
    told = obj.__sycl_usm_array_interface__
    assert (found.address, found.size, found.host_visible) == (told["data"][0], 2 * PAGE, True)
    assert not found.read_only  # whatever the flag says
    assert found.owner[0] is obj  # type: ignore[index]
    assert found.owner[1]["syclobj"] is told["syclobj"]  # type: ignore[index]
    assert interop.describe(sycl(_usm_type="device")).host_visible is False
    assert interop.describe(sycl(_get_usm_type=lambda: "host")).host_visible is True
    assert interop.describe(sycl()).host_visible is None
    assert interop.describe(sycl(_usm_type="new")).host_visible is None


def test_sycl_counts_in_elements() -> None:
    obj = sycl(shape=(3, 2), typestr="<f4", strides=(1, 3), offset=5)
    found = interop.describe(obj)
    assert found.address == obj.__sycl_usm_array_interface__["data"][0] + 20
    assert (found.strides, found.size) == ((4, 12), 24)
    assert interop.describe(sycl(shape=(3, 2), typestr="<f4", strides=(2, 1))).strides is None


@pytest.mark.parametrize(
    "changes",
    [
        {"data": 4096},
        {"data": (0, True)},
        {"syclobj": None},
        {"shape": (-1,)},
        {"strides": (1, 1)},
        {"offset": -(1 << 60)},
    ],
    ids=str,
)
def test_impossible_sycl_interfaces(changes: dict[str, Any]) -> None:
    with pytest.raises(l0py.InvalidArgument, match="__sycl_usm_array_interface__"):
        interop.describe(sycl(**changes))


def test_a_sycl_interface_of_another_version() -> None:
    with pytest.raises(l0py.NotSupported, match="version 2"):
        interop.describe(sycl(version=2))


# --- Context.import_array


@pytest.fixture
def imported(context: l0py.Context) -> Iterator[Any]:
    made: list[l0py.Memory] = []

    def do(obj: Any, **options: Any) -> l0py.Memory:
        made.append(context.import_array(obj, **options))
        return made[-1]

    yield do
    for memory in made:
        memory.close()


@pytest.mark.parametrize(
    "wrap",
    [
        lambda a: a,
        lambda a: memoryview(a),
        lambda a: Has("__array_interface__", a.__array_interface__, owner=a),
        lambda a: Has("__dlpack__", a.__dlpack__, __dlpack_device__=a.__dlpack_device__),
        lambda a: a.__dlpack__(max_version=(1, 0)),
    ],
    ids=["array", "buffer", "interface", "dlpack", "capsule"],
)
def test_arrays_become_memory(imported: Any, wrap: Any) -> None:
    numbers = pages().view("<f4").reshape(2, -1)
    memory = imported(wrap(numbers))
    assert (memory.address, memory.size, memory.origin) == (numbers.ctypes.data, 2 * PAGE, "pointer")
    numbers[1, 3] = 2.5
    assert memory.numpy("<f4", (2, PAGE // 4))[1, 3] == 2.5
    memory.fill(0x41)
    assert (numbers.view("u1") == 0x41).all()


def test_the_array_lives_as_long_as_its_memory(context: l0py.Context, no_leaks: None) -> None:
    memory = context.import_array(pages())
    memory.view()[-1] = 9
    assert memory.numpy()[-1] == 9
    memory.close()
    mapping = mmap.mmap(-1, PAGE)
    memory = context.import_array(mapping)
    with pytest.raises(BufferError):
        mapping.close()
    memory.close()
    mapping.close()


def test_read_only_arrays(imported: Any) -> None:
    numbers = pages()
    numbers.flags.writeable = False
    with pytest.raises(l0py.InvalidArgument, match="read_only=True"):
        imported(numbers, read_only=False)
    assert imported(numbers).read_only
    assert imported(pages(), read_only=True).read_only
    assert not imported(pages()).read_only


@pytest.mark.parametrize(
    ("obj", "way_out"),
    [
        (lambda: pages()[1 : PAGE + 1], "mmap.mmap"),
        (lambda: pages()[:100], "alloc_host"),
        (lambda: pages()[:0], "whole pages"),
        (lambda: pages()[::2], "gaps"),
        (lambda: pages(4).reshape(2, -1)[:, :PAGE], "gaps"),
    ],
    ids=["begin", "end", "empty", "step", "rows"],
)
def test_arrays_that_cannot_be_imported(context: l0py.Context, obj: Any, way_out: str, no_leaks: None) -> None:
    with pytest.raises(l0py.InvalidArgument, match=way_out):
        context.import_array(obj())


def test_a_refused_array_is_let_go_at_once(context: l0py.Context) -> None:
    data = bytearray(100)
    with pytest.raises(l0py.InvalidArgument) as caught:
        context.import_array(data)
    data.append(1)
    assert caught.value.args


def test_what_the_driver_refuses_is_let_go_at_once(context: l0py.Context, no_leaks: None) -> None:
    mapping = mmap.mmap(-1, PAGE)
    softdriver.inject("zeMemAllocHost", result="ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY")
    with pytest.raises(l0py.OutOfMemory) as caught:
        context.import_array(mapping)
    mapping.close()
    assert caught.value.function == "zeMemAllocHost"


def test_sycl_memory_becomes_memory_where_the_host_sees_it(imported: Any) -> None:
    obj = sycl(_usm_type="host")
    memory = imported(obj)
    memory.fill(6)
    assert obj.bytes_[:3] == b"\6\6\6"
    assert imported(sycl()).size == 2 * PAGE  # nobody says what it is: the driver takes it or not
    with pytest.raises(l0py.NotSupported, match="export it as a dma-buf"):
        imported(sycl(_usm_type="device"))
