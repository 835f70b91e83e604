"""dpctl: SYCL's USM as NPU memory, and the NPU's memory seen by SYCL, without a line of SYCL in our packages.

The SYCL device is the CPU under Intel's OpenCL runtime, whose library OCL_ICD_FILENAMES must name.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from npu_helpers import nothing_leaks
from peer_helpers import COUNT, KERNELS, PAGE, SIZE, Runtime, intel_opencl, require

import l0py
import ovadapter

if TYPE_CHECKING:
    from collections.abc import Callable

    from peer_helpers import Exchange

# OpenVINO brings an older TBB, with which Intel's OpenCL runtime does not load: the first one stays.
in_sycl_s_process = pytest.mark.own_process(first="import dpctl\ndpctl.get_devices()")


@pytest.fixture
def runtime() -> Runtime:
    require("dpctl")
    return Runtime(intel_opencl())


@dataclass
class Sycl:
    """A queue, its kernels and its USM."""

    queue: Any
    program: Any

    def allocate(self, kind: str) -> Any:
        import dpctl.memory

        return getattr(dpctl.memory, f"MemoryUSM{kind}")(SIZE, alignment=PAGE, queue=self.queue)

    def write(self, target: Any) -> Callable[[Any], None]:
        return lambda values: self._run("count_from", target, ctypes.c_float(values[0]))

    def read(self, source: Any) -> Callable[[], Any]:
        def read() -> Any:
            copy = self.allocate("Host")
            self._run("reread", source, copy)
            return np.frombuffer(copy, np.float32).copy()

        return read

    def _run(self, name: str, *arguments: Any) -> None:
        self.queue.submit(self.program.get_sycl_kernel(name), list(arguments), [COUNT]).wait()


def open_queue() -> Sycl:
    import dpctl.program

    queue = dpctl.SyclQueue("opencl:cpu")
    return Sycl(queue, dpctl.program.create_program_from_source(queue, KERNELS))


def memory_of(context: l0py.Context, usm: Any) -> l0py.Memory:
    if usm.get_usm_type() != "device":
        return context.import_array(usm)
    with pytest.raises(l0py.NotSupported):  # what is true of device memory in general
        context.import_array(usm)
    address, _ = usm.__sycl_usm_array_interface__["data"]
    return context.import_pointer(address, usm.nbytes, owner=usm)


@in_sycl_s_process
@pytest.mark.parametrize("kind", ["Host", "Shared", "Device"])
def test_usm_in_inference_usm_out(runtime: Any, exchange: Exchange, context: l0py.Context, kind: str) -> None:
    """Kernels write and read at both ends. Here the device is the CPU, and its memory the host's."""
    sycl = open_queue()

    def run() -> None:
        x, y = sycl.allocate(kind), sycl.allocate(kind)
        with memory_of(context, x) as source, memory_of(context, y) as target:
            assert source.address == x.__sycl_usm_array_interface__["data"][0]
            exchange(source, target, sycl.write(x), sycl.read(y))
            source.view("f")[3] = 21
            assert sycl.read(x)()[3] == 21

    run()
    with nothing_leaks():
        run()


@in_sycl_s_process
def test_usm_is_bound_as_it_is(runtime: Any, exchange: Exchange) -> None:
    sycl = open_queue()
    x, y = sycl.allocate("Host"), sycl.allocate("Shared")
    exchange(x, y, sycl.write(x), sycl.read(y))


@in_sycl_s_process
def test_usm_outlives_what_made_it(runtime: Any, context: l0py.Context) -> None:
    sycl = open_queue()
    memory = context.import_array(sycl.allocate("Shared"))
    memory.numpy("f4")[:] = 2
    sycl.allocate("Shared")
    assert memory.view("f").tolist() == [2] * COUNT
    memory.close()


WITHOUT_SYCL = """
import sys
import numpy, openvino
from pathlib import Path
from npu_helpers import add_model
import l0py, ovadapter

npu = ovadapter.NpuContext(openvino.Core())
request = npu.core.compile_model(add_model([1000]), "NPU").create_infer_request()
with l0py.Context(npu.device) as context, context.alloc_host(4000, exportable=True) as memory:
    with npu.bind(request, {"xt": memory}) as binding:
        binding.infer()
        assert not binding.verdict("xt")
assert not {name.partition(".")[0] for name in sys.modules} & {"dpctl", "dpnp"}
maps = Path("/proc/self/maps").read_text()
assert "libopenvino.so" in maps
assert "libsycl" not in maps
"""


def test_nothing_of_ours_needs_sycl(python: Any) -> None:
    """Neither in what is written nor in what is loaded for an inference."""
    done = python(WITHOUT_SYCL, PYTHONPATH=os.pathsep.join(sys.path))
    assert done.returncode == 0, done.stderr

    imports = re.compile(r"^\s*(?:import|from)\s+(?:dpctl|dpnp|sycl)|import_module\(.(?:dpctl|dpnp)", re.MULTILINE)
    for package in (l0py, ovadapter):
        sources = list(Path(package.__file__).parent.rglob("*.py"))
        assert sources
        assert not [path for path in sources if imports.search(path.read_text(encoding="utf-8"))]
