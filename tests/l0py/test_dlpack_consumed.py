"""Tensors of others, made by hand: true ones and impossible ones."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import numpy as np
import pytest
from dlpack_structs import DELETER, Tensor, Unversioned, Versioned
from hypothesis import given, settings
from hypothesis.strategies import fixed_dictionaries, integers, lists, none, one_of, sampled_from

import l0py
from l0py import dlpack, interop
from l0py._ffi import lib as c

new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Producer:
    """Another library: 24 bytes as six float32, unless told otherwise. Counts how often its deleter ran."""

    def __init__(self, *, versioned: bool = True, major: int = 1, flags: int = 0, **changes: Any) -> None:
        self.bytes = (ctypes.c_char * 4096)()
        self.ended = 0
        fields: dict[str, Any] = {
            "data": ctypes.addressof(self.bytes),
            "device_type": 1,
            "ndim": 2,
            "code": 2,
            "bits": 32,
            "lanes": 1,
            "shape": (2, 3),
            "strides": None,
            **changes,
        }
        for name in ("shape", "strides"):
            numbers = fields[name]
            fields[name] = None if numbers is None else (ctypes.c_int64 * len(numbers))(*numbers)
        self.device = (fields["device_type"], fields.get("device_id", 0))
        tensor, deleter = Tensor(**fields), DELETER(self.end)
        self.versioned = versioned
        self.managed: Any = (
            Versioned(major, 3, None, deleter, flags, tensor) if versioned else Unversioned(tensor, None, deleter)
        )

    def end(self, _managed: int) -> None:
        self.ended += 1

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **_: Any) -> Any:
        name = b"dltensor_versioned" if self.versioned else b"dltensor"
        return new_capsule(ctypes.addressof(self.managed), name, None)


@pytest.mark.parametrize("versioned", [True, False])
def test_the_deleter_runs_once(versioned: bool) -> None:
    producer = Producer(versioned=versioned)
    found = interop.describe(producer)
    assert (found.address, found.size, found.shape, found.format, found.strides) == (
        ctypes.addressof(producer.bytes),
        24,
        (2, 3),
        "<f4",
        None,
    )
    assert (found.protocol, found.read_only, found.host_visible, found.context) == ("dlpack", False, True, 0)
    gc.collect()
    assert producer.ended == 0
    found.release()
    assert producer.ended == 1
    found.release()
    del found
    gc.collect()
    assert producer.ended == 1


def test_the_collector_ends_it_too() -> None:
    producer = Producer()
    found = interop.describe(producer.__dlpack__())
    assert found.shape == (2, 3)
    del found
    gc.collect()
    assert producer.ended == 1
    with interop.describe(producer):
        assert producer.ended == 1
    assert producer.ended == 2


def test_a_producer_without_a_deleter() -> None:
    producer = Producer()
    producer.managed.deleter = DELETER()
    interop.describe(producer).release()
    assert producer.ended == 0


@pytest.mark.parametrize("device", [1, 3, 11, 13])
def test_memory_that_the_host_sees(device: int) -> None:
    assert interop.describe(Producer(device_type=device)).host_visible


@pytest.mark.parametrize("device", [2, 4, 7, 8, 9, 10, 12, 14, 15, 99, -1])
def test_memory_that_it_does_not_see(device: int) -> None:
    producer = Producer(device_type=device)
    with pytest.raises(l0py.NotSupported, match=rf"DLPack device \({device}, 0\)"):
        interop.describe(producer)
    assert producer.ended == 0
    producer.device = (1, 0)  # the capsule tells the truth
    with pytest.raises(l0py.NotSupported, match="may not touch"):
        interop.describe(producer)
    assert producer.ended == 1


def test_offsets_and_strides() -> None:
    producer = Producer(byte_offset=40, strides=(1, 2))
    found = interop.describe(producer)
    assert found.address == ctypes.addressof(producer.bytes) + 40
    assert found.strides == (4, 8)
    assert interop.describe(Producer(strides=(3, 1))).strides is None
    assert interop.describe(Producer(shape=(1, 6), strides=(77, 1))).strides is None
    assert interop.describe(Producer(strides=(-3, 1), byte_offset=12)).strides == (-12, 4)
    assert interop.describe(Producer(strides=(0, 0))).strides == (0, 0)
    scalar = interop.describe(Producer(ndim=0, shape=None))
    assert (scalar.shape, scalar.size) == ((), 4)
    empty = interop.describe(Producer(data=None, shape=(0, 3), strides=(3, 1), byte_offset=8))
    assert (empty.shape, empty.size, empty.address) == ((0, 3), 0, 0)


def test_flags() -> None:
    assert interop.describe(Producer(flags=c.L0_DLPACK_READ_ONLY)).read_only
    producer = Producer(flags=c.L0_DLPACK_COPIED)
    with pytest.raises(l0py.NotSupported, match="made a copy"):
        interop.describe(producer)
    assert producer.ended == 1


@pytest.mark.parametrize(
    ("code", "bits", "text"),
    [(4, 16, "bfloat16"), (6, 8, "|b1"), (5, 64, "<c8"), (10, 8, "float8_e4m3fn"), (2, 128, "<f16"), (1, 8, "|u1")],
)
def test_types(code: int, bits: int, text: str) -> None:
    found = interop.describe(Producer(code=code, bits=bits))
    assert (found.format, found.size) == (text, 6 * bits // 8)


@pytest.mark.parametrize("changes", [{"lanes": 4}, {"code": 17, "bits": 4}, {"code": 3, "bits": 64}, {"bits": 12}])
def test_types_that_have_no_format(changes: dict[str, int]) -> None:
    producer = Producer(**changes)
    with pytest.raises(l0py.NotSupported, match="no format"):
        interop.describe(producer)
    assert producer.ended == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"ndim": -1},
        {"ndim": 1 << 30},
        {"shape": None},
        {"shape": (-2, 3)},
        {"shape": (1 << 62, 2)},
        {"shape": (1 << 62, 1 << 62)},
        {"data": None},
        {"byte_offset": (1 << 64) - 1},
        {"strides": (1 << 62, 1)},
        {"strides": (-(1 << 62), 1)},
    ],
    ids=str,
)
@pytest.mark.parametrize("versioned", [True, False])
def test_impossible_tensors(changes: dict[str, Any], versioned: bool) -> None:
    producer = Producer(versioned=versioned, **changes)
    with pytest.raises(l0py.InvalidArgument, match=r"(?i)dlpack"):
        interop.describe(producer)
    assert producer.ended == 1
    gc.collect()
    assert producer.ended == 1


@given(
    ndim=integers(-2, 70),
    extents=lists(one_of(integers(-3, 5), integers(-(1 << 63), (1 << 63) - 1)), min_size=70, max_size=70),
    steps=one_of(none(), lists(integers(-(1 << 63), (1 << 63) - 1), min_size=70, max_size=70)),
    fields=fixed_dictionaries(
        {
            "code": integers(0, 20),
            "bits": sampled_from([0, 1, 8, 16, 32, 64, 128]),
            "lanes": integers(0, 2),
            "byte_offset": one_of(integers(0, 64), integers(0, (1 << 64) - 1)),
            "flags": integers(0, 7),
        }
    ),
)
@settings(max_examples=200, deadline=None)
def test_whatever_a_tensor_says(ndim: int, extents: list[int], steps: list[int] | None, fields: dict[str, int]) -> None:
    producer = Producer(ndim=ndim, shape=extents, strides=steps, **fields)
    try:
        found = interop.describe(producer)
    except l0py.Error:
        assert producer.ended == 1
        return
    assert producer.ended == 0
    assert found.shape == tuple(extents[:ndim])
    assert found.size == 0 or 0 < found.address <= (1 << 64) - found.size or found.strides is not None
    found.release()
    assert producer.ended == 1


def test_another_major_version() -> None:
    producer = Producer(major=2)
    with pytest.raises(l0py.NotSupported, match="major version"):
        interop.describe(producer)
    assert producer.ended == 0  # the capsule was left to its maker


def test_producers_that_cannot_be_understood() -> None:
    class Says:
        def __init__(self, device: Any, capsule: Any) -> None:
            self.device, self.capsule = device, capsule

        def __dlpack_device__(self) -> Any:
            return self.device

        def __dlpack__(self, **_: Any) -> Any:
            return self.capsule

    for device, capsule in (((1, 0), None), (None, None), ((1,), None), (("cpu", 0), None), ((1, 0), object())):
        with pytest.raises(l0py.InvalidArgument):
            interop.describe(Says(device, capsule))

    class NoDevice:
        def __dlpack__(self) -> Any:
            raise AssertionError

    with pytest.raises(l0py.InvalidArgument, match="__dlpack_device__"):
        interop.describe(NoDevice())


def test_producers_of_the_first_protocol() -> None:
    """`__dlpack__(stream=None)` was all that there was."""

    class Old(Producer):
        def __dlpack__(self, stream: Any = None) -> Any:  # type: ignore[override]
            return super().__dlpack__()

    producer = Old(versioned=False)
    interop.describe(producer).release()
    assert producer.ended == 1


def test_numpy_by_dlpack_alone() -> None:
    class Only:
        def __init__(self, array: Any) -> None:
            self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__

    array = np.arange(24, dtype="<i2").reshape(4, 6)
    found = interop.describe(Only(array[::2, 1:]))
    assert (found.address, found.shape, found.strides) == (array.ctypes.data + 2, (2, 5), (24, 2))
    array.flags.writeable = False
    assert interop.describe(Only(array)).read_only


def test_our_own_memory_comes_back(context: l0py.Context, no_leaks: None) -> None:
    with context.alloc_host(4096) as memory:
        found = interop.describe(memory.typed("bfloat16", (4, 4)).__dlpack__(max_version=(1, 0)))
        assert (found.address, found.format, found.shape) == (memory.address, "bfloat16", (4, 4))
        with pytest.raises(l0py.InUse, match="DLPack"):
            memory.close()
        found.release()
        assert dlpack.count(memory) == 0
