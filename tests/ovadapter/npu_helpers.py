"""Models, arrays and counters that the tests of this directory share."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import openvino as ov

from l0py import handles, softdriver

if TYPE_CHECKING:
    from collections.abc import Iterator


def add_model(shape: list[int], type_: Any = None, *, value: float = 1.0) -> Any:
    """xt -> xt + value -> yt."""
    from openvino import opset13 as ops

    type_ = type_ or ov.Type.f32
    parameter = ops.parameter(shape, type_)
    parameter.output(0).get_tensor().set_names({"xt", "x_alias"})
    total = ops.add(parameter, ops.constant(np.array(value, type_.to_dtype())))
    total.output(0).get_tensor().set_names({"yt"})
    return ov.Model([total], [parameter], "add")


def aligned_array(size: int, *, skew: int = 0) -> Any:
    """A u8 array that starts on a page, or `skew` bytes after it."""
    raw = np.zeros(size + 4096 + skew, np.uint8)
    start = -raw.ctypes.data % 4096 + skew
    return raw[start : start + size]


def last_pointers() -> list[int]:
    """The addresses of the driver's last graph execution."""
    return list(softdriver.executions()[-1]["arguments"])


@contextmanager
def nothing_leaks() -> Iterator[None]:
    """File descriptors, mappings of shared memory and native objects are as many after as before."""
    gc.collect()
    before = _counts()
    yield
    gc.collect()
    after = _counts()
    assert after == before, f"before {before}, after {after}"


def _counts() -> dict[str, Any]:
    mappings = [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd" in line or "l0py" in line]
    record = softdriver.record()
    return {
        "fds": len(list(Path("/proc/self/fd").iterdir())),
        "mappings": len(mappings),
        "l0py": handles.live_objects(),
        "driver": record["objects"],
        "memory": record["memory"]["now"],
    }
