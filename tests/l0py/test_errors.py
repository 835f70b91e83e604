from __future__ import annotations

import pickle

import pytest

import l0py
from l0py import errors, lib, softdriver
from l0py._enums import ze_result_t

BUILTINS = {
    l0py.Error: RuntimeError,
    l0py.InvalidArgument: ValueError,
    l0py.BadDescriptor: OSError,
    l0py.Closed: ValueError,
    l0py.InUse: BufferError,
    l0py.OutOfMemory: MemoryError,
    l0py.NotSupported: NotImplementedError,
    l0py.FunctionMissing: NotImplementedError,
    l0py.NotPermitted: PermissionError,
    l0py.DeviceLost: OSError,
    l0py.LoaderNotFound: OSError,
    l0py.NoDriver: LookupError,
    l0py.NoDevice: LookupError,
}

EXPECTED = {
    "DEVICE_LOST": l0py.DeviceLost,
    "DEVICE_REQUIRES_RESET": l0py.DeviceLost,
    "OUT_OF_HOST_MEMORY": l0py.OutOfMemory,
    "OUT_OF_DEVICE_MEMORY": l0py.OutOfMemory,
    "INSUFFICIENT_PERMISSIONS": l0py.NotPermitted,
    "UNINITIALIZED": l0py.NoDriver,
    "UNSUPPORTED_FEATURE": l0py.NotSupported,
    "UNSUPPORTED_VERSION": l0py.NotSupported,
    "NOT_AVAILABLE": l0py.NotSupported,
    "HANDLE_OBJECT_IN_USE": l0py.InUse,
    "INVALID_ARGUMENT": l0py.InvalidArgument,
    "INVALID_NULL_HANDLE": l0py.InvalidArgument,
    "UNSUPPORTED_SIZE": l0py.InvalidArgument,
    "UNSUPPORTED_ALIGNMENT": l0py.InvalidArgument,
    "ADDRESS_NOT_FOUND": l0py.InvalidArgument,
    "OVERLAPPING_REGIONS": l0py.InvalidArgument,
    "MODULE_BUILD_FAILURE": l0py.Error,
    "UNKNOWN": l0py.Error,
}


def number(short: str) -> int:
    return next(value for value, name in ze_result_t.items() if name == f"ZE_RESULT_ERROR_{short}")


@pytest.mark.parametrize("short", EXPECTED)
def test_a_result_becomes_its_class(short: str) -> None:
    error = errors.from_result(number(short), "zeSomething", here="doing something")
    assert type(error) is EXPECTED[short]
    assert error.name == f"ZE_RESULT_ERROR_{short}"
    for part in ("zeSomething", f"ZE_RESULT_ERROR_{short}", f"{number(short):#x}", "doing something"):
        assert part in str(error)
    assert (error.result, error.function) == (number(short), "zeSomething")


def test_every_result_of_the_specification_is_an_answer_or_an_error() -> None:
    answers = {"ZE_RESULT_SUCCESS", "ZE_RESULT_NOT_READY", "ZE_RESULT_QUERY_TRUE", "ZE_RESULT_QUERY_FALSE"}
    for value, name in ze_result_t.items():
        if name in answers:
            assert errors.check(value, "zeSomething") == value
        else:
            with pytest.raises(l0py.Error):
                errors.check(value, "zeSomething")


def test_a_number_that_nobody_knows_is_shown() -> None:
    with pytest.raises(l0py.Error, match="0x12345"):
        errors.check(0x12345, "zeSomething")


@pytest.mark.parametrize("kind", BUILTINS)
def test_every_class_is_the_builtin_that_people_catch(kind: type[l0py.Error]) -> None:
    error = kind("it failed")
    assert isinstance(error, BUILTINS[kind])
    assert isinstance(error, l0py.Error)
    assert str(error) == "it failed"
    assert error.result is None
    assert error.name is None
    assert str(pickle.loads(pickle.dumps(error))) == "it failed"


def test_the_table_above_has_every_class() -> None:
    classes = {value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, l0py.Error)}
    assert classes == set(BUILTINS)


def test_the_driver_s_own_words_are_told(context: l0py.Context) -> None:
    if not lib.has("zeDriverGetLastErrorDescription"):
        pytest.skip("this loader is from before drivers had words")
    softdriver.memory_limit(4096)
    with pytest.raises(l0py.OutOfMemory, match="the driver says: the device's memory is used up") as caught:
        context.alloc_host(8192)
    assert caught.value.description == "the device's memory is used up"
