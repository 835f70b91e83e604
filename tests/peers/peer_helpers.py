"""How the tests of this directory show that nothing is copied, and the pages that a peer's memory lies in."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from npu_helpers import last_pointers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import l0py
    import ovadapter

COUNT = 2048
SIZE = COUNT * 4
"""Elements (f32) and bytes of the model's input and output: two pages."""

PAGE = 4096

KERNELS = """
kernel void count_from(global float *out, float first) { out[get_global_id(0)] = first + get_global_id(0); }
kernel void reread(global const float *in, global float *out) { out[get_global_id(0)] = in[get_global_id(0)]; }
kernel void where_is(global const float *in, global ulong *out) { *out = (ulong)in; }
"""
"""For OpenCL and SYCL: one writes f32, one reads them into other memory, one tells an address."""


class Runtime(NamedTuple):
    """What a peer's process needs: variables of its environment, and the command that starts Python."""

    environment: dict[str, str]
    python: Sequence[str] = (sys.executable,)


@dataclass(frozen=True)
class Exchange:
    """Inferences with a peer at both ends."""

    npu: ovadapter.NpuContext
    compiled: Any

    def __call__(self, source: Any, target: Any, write: Callable[[Any], None], read: Callable[[], Any]) -> None:
        """Binds memory once, and only then writes at one end and reads at the other, twice.

        `write(values)` and `read()` are the peer's own ways to memory that it has handed over, or was handed.
        """
        request = self.compiled.create_infer_request()
        with self.npu.bind(request, {"xt": source}, {"yt": target}) as binding:
            for start in (3, 70_000):
                values = np.arange(start, start + COUNT, dtype=np.float32)
                write(values)
                binding.infer()
                assert (np.asarray(read()).reshape(-1) == values + 1).all()
                assert [binding.tensors[name].address for name in ("xt", "yt")] == last_pointers()
                for name in ("xt", "yt"):
                    verdict = binding.verdict(name)
                    assert (verdict.copied, verdict.evidence) == (False, "driver record"), str(verdict)


def import_pages(context: l0py.Context, address: int, size: int, owner: object, **options: Any) -> tuple[Any, int]:
    """All pages that these bytes lie in as memory, and where in it they begin."""
    start = address // PAGE * PAGE
    end = -(-(address + size) // PAGE) * PAGE
    return context.import_pointer(start, end - start, owner=owner, **options), address - start


def write_shared_memory(name: str, values: Any) -> None:
    """For another process: writes f32 into a `multiprocessing.shared_memory` segment."""
    segment = SharedMemory(name)
    np.frombuffer(segment.buf, np.float32, COUNT)[:] = values
    segment.close()


def read_shared_memory(name: str) -> Any:
    """For another process: what f32 the segment holds."""
    segment = SharedMemory(name)
    values = np.frombuffer(segment.buf, np.float32, COUNT).copy()
    segment.close()
    return values


def require(*modules: str) -> None:
    """Skips the test unless these are installed. Imports none of them."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed (extra `peers`)")


def intel_opencl() -> dict[str, str]:
    """The environment in which the CPU is a SYCL device; skips the test where Intel's OpenCL runtime is missing."""
    library = Path(sys.prefix, "lib", "libintelocl.so")
    if not library.exists():
        pytest.skip("intel-opencl-rt is not installed (extra `peers`)")
    return {"OCL_ICD_FILENAMES": str(library), "ONEAPI_DEVICE_SELECTOR": "*:cpu"}
