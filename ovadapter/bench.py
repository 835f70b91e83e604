"""What things cost: a call, an allocation, and feeding a tensor; variants side by side in one run, medians and ratios.

Every figure is the median over rounds in which all variants take turns, so that a busy machine slows all of them alike.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import l0py

from .context import NpuContext
from .hardware import choose_driver

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

__all__ = ["add_arguments", "measure", "run"]

SIZES = tuple(1 << power for power in range(12, 27, 2))
"""Bytes of the tensors: 4 KiB to 64 MiB."""

_PAGE = 4096

_C_DECLARATIONS = """
int zeDriverGetApiVersion(uintptr_t driver, uint32_t* version);
int zeMemAllocHost(uintptr_t context, const void* desc, size_t size, size_t alignment, void** memory);
int zeMemFree(uintptr_t context, void* memory);
"""
_C_LOOPS = """
void calls(uintptr_t driver, long count) {
  uint32_t version;
  for (long i = 0; i < count; ++i) zeDriverGetApiVersion(driver, &version);
}
void allocations(uintptr_t context, const void* desc, size_t size, long count) {
  void* memory;
  for (long i = 0; i < count; ++i) {
    zeMemAllocHost(context, desc, size, 0, &memory);
    zeMemFree(context, memory);
  }
}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line of `python -m ovadapter bench`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout and nothing else")
    parser.add_argument("--rounds", type=int, default=15, help="how often each variant takes its turn (default: 15)")


def run(arguments: argparse.Namespace) -> int:
    """Measures and prints; 0 unless something fails."""
    try:
        choose_driver(lambda text: print(f"bench: {text}", file=sys.stderr, flush=True))
        findings = measure(max(1, arguments.rounds))
    except (l0py.Error, ModuleNotFoundError) as error:
        print(f"bench: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(json.dumps(findings) if arguments.json else _as_text(findings))
    return 0


def measure(rounds: int) -> dict[str, Any]:
    """All figures: nanoseconds of a call, of an allocation with its free, and of an inference, by variant."""
    npu = NpuContext()
    with tempfile.TemporaryDirectory() as directory, l0py.Context(npu.device) as context:
        compiled = _compile_c(Path(directory))
        return {
            "machine": {"cpu": _cpu(), "cpus": os.cpu_count(), "python": platform.python_version()},
            "driver": "software" if npu.device.driver.is_software else npu.device.name,
            "loader": l0py.loader.info().path,
            "rounds": rounds,
            "call": _compare(_calls(npu.device.driver, compiled), rounds, baseline="C"),
            "allocation of 4 KiB and free": _compare(_allocations(context, compiled), rounds, baseline="C"),
            "tensors": {size: _tensors(npu, context, size, rounds) for size in SIZES},
        }


def _compare(variants: dict[str, Callable[[], float] | None], rounds: int, baseline: str) -> dict[str, Any]:
    """Each variant's median in nanoseconds, and its ratio to the baseline; None for those that cannot run here."""
    there = {name: variant for name, variant in variants.items() if variant is not None}
    for variant in there.values():
        variant()  # the first turn pays for what is made once
    times: dict[str, list[float]] = {name: [] for name in there}
    for _ in range(rounds):
        for name, variant in there.items():
            times[name].append(variant())
    medians = {name: statistics.median(measured) for name, measured in times.items()}
    return {
        name: {"ns": round(medians[name], 1), "ratio": _ratio(medians[name], medians.get(baseline))}
        if name in medians
        else None
        for name in variants
    }


def _ratio(value: float, base: float | None) -> float | None:
    return None if base is None else round(value / base, 2)


def _timed(work: Callable[[range], object], count: int) -> Callable[[], float]:
    """Nanoseconds of one of `count` steps."""

    def turn() -> float:
        steps = range(count)
        work(steps[:2])  # the caches are the other variant's
        start = time.perf_counter_ns()
        work(steps)
        return (time.perf_counter_ns() - start) / count

    return turn


def _calls(driver: l0py.Driver, compiled: Any) -> dict[str, Callable[[], float] | None]:
    """`zeDriverGetApiVersion`, which does next to nothing, by every way to call it from Python."""
    count, handle = 20_000, driver.handle
    function, out = l0py.lib.zeDriverGetApiVersion, l0py.lib.ffi.new("ze_api_version_t*")
    foreign = ctypes.CDLL(l0py.loader.info().path).zeDriverGetApiVersion
    foreign.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint32)]
    version = ctypes.c_uint32()
    reference = ctypes.byref(version)

    def by_lib(steps: range) -> None:
        for _ in steps:
            function(handle, out)

    def by_ctypes(steps: range) -> None:
        for _ in steps:
            foreign(handle, reference)

    variants: dict[str, Callable[[], float] | None] = {
        "l0py.lib": _timed(by_lib, count),
        "bare cffi": None,
        "ctypes": _timed(by_ctypes, count),
        "C": None,
    }
    if compiled is not None:
        bare, bare_out = compiled.lib.zeDriverGetApiVersion, compiled.ffi.new("uint32_t*")

        def by_cffi(steps: range) -> None:
            for _ in steps:
                bare(handle, bare_out)

        variants["bare cffi"] = _timed(by_cffi, count)
        variants["C"] = _timed(lambda steps: compiled.lib.calls(handle, len(steps)), count)
    return variants


def _allocations(context: l0py.Context, compiled: Any) -> dict[str, Callable[[], float] | None]:
    count, handle, lib = 300, context.handle, l0py.lib
    desc = lib.ffi.new("ze_host_mem_alloc_desc_t*", {"stype": lib.ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC})
    out = lib.ffi.new("uintptr_t*")
    allocate, free = lib.zeMemAllocHost, lib.zeMemFree
    library = ctypes.CDLL(l0py.loader.info().path)
    library.zeMemAllocHost.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_size_t,
        ctypes.c_void_p,
    ]
    library.zeMemFree.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    pointer = ctypes.c_void_p()
    reference, desc_address = ctypes.byref(pointer), lib.address(desc)

    def by_objects(steps: range) -> None:
        for _ in steps:
            context.alloc_host(_PAGE).close()

    def by_lib(steps: range) -> None:
        for _ in steps:
            allocate(handle, desc, _PAGE, 0, out)
            free(handle, out[0])

    def by_ctypes(steps: range) -> None:
        for _ in steps:
            library.zeMemAllocHost(handle, desc_address, _PAGE, 0, reference)
            library.zeMemFree(handle, pointer)

    in_c = None
    if compiled is not None:
        there = compiled.ffi.cast("void*", desc_address)
        in_c = _timed(lambda steps: compiled.lib.allocations(handle, there, _PAGE, len(steps)), count)
    return {
        "l0py objects": _timed(by_objects, count),
        "l0py.lib": _timed(by_lib, count),
        "ctypes": _timed(by_ctypes, count),
        "C": in_c,
    }


def _tensors(npu: NpuContext, context: l0py.Context, size: int, rounds: int) -> dict[str, Any]:
    """An inference on a new input, which takes one element of it: what is left is the price of the input."""
    import numpy as np
    import openvino as ov

    compiled = npu.core.compile_model(_first_element(size // 4), "NPU")
    # One for each: a request that changes between them gives memory back and takes it again.
    copying, binding = compiled.create_infer_request(), compiled.create_infer_request()
    array = np.ones(size // 4 + 1, np.float32)[1:]  # anywhere in memory, as arrays are
    count = max(20, min(100, (1 << 24) // size))

    def plain(steps: range) -> None:
        for _ in steps:
            copying.set_tensor("x", ov.Tensor(array, shared_memory=True))
            copying.infer()

    with context.alloc_host(size, exportable=True) as memory:
        memory.numpy("f4")[:] = 1
        with npu.remote_tensor(memory, [size // 4], "f32") as tensor:
            remote = tensor.remote

            def bound(steps: range) -> None:
                for _ in steps:
                    binding.set_tensor("x", remote)
                    binding.infer()

            return _compare({"numpy": _timed(plain, count), "remote": _timed(bound, count)}, rounds, "remote")


def _first_element(count: int) -> Any:
    import numpy as np
    import openvino as ov
    from openvino import opset13 as ops

    x = ops.parameter([count], ov.Type.f32)
    x.output(0).get_tensor().set_names({"x"})
    zero, one = np.array([0], np.int64), np.array([1], np.int64)
    return ov.Model([ops.slice(x, zero, one, one)], [x], "first element")


def _compile_c(directory: Path) -> Any:
    """The C variants as a cffi module, compiled now; None where there is no compiler."""
    from cffi import FFI

    builder = FFI()
    builder.cdef(_C_DECLARATIONS + "void calls(uintptr_t driver, long count);\n")
    builder.cdef("void allocations(uintptr_t context, const void* desc, size_t size, long count);")
    source = f"#include <stdint.h>\n#include <stddef.h>\n{_C_DECLARATIONS}{_C_LOOPS}"
    builder.set_source("l0py_bench", source, extra_objects=[l0py.loader.info().path], extra_compile_args=["-O2"])
    try:
        builder.compile(tmpdir=str(directory))
    except Exception as error:  # whatever setuptools and the compiler come up with
        print(f"bench: no C variants: {type(error).__name__}: {error}", file=sys.stderr)
        return None
    sys.path.insert(0, str(directory))
    try:
        return importlib.import_module("l0py_bench")
    finally:
        sys.path.remove(str(directory))


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _as_text(findings: dict[str, Any]) -> str:
    machine = findings["machine"]
    rows = [f"{machine['cpu']}, {machine['cpus']} CPUs, Python {machine['python']}, driver: {findings['driver']}", ""]
    for title in ("call", "allocation of 4 KiB and free"):
        rows.append(f"{title:<32}{'ns':>12}{'to C':>10}")
        rows += [_row(name, figure) for name, figure in findings[title].items()]
        rows.append("")
    rows.append(f"{'set_tensor and infer, us':<32}{'numpy':>12}{'remote':>12}{'ratio':>10}")
    for size, figures in findings["tensors"].items():
        numpy, remote = figures["numpy"], figures["remote"]
        rows.append(f"{_size(size):<32}{numpy['ns'] / 1e3:>12.1f}{remote['ns'] / 1e3:>12.1f}{numpy['ratio']:>10.2f}")
    return "\n".join(rows)


def _row(name: str, figure: dict[str, Any] | None) -> str:
    if figure is None:
        return f"  {name:<30}{'not run':>12}"
    ratio = "" if figure["ratio"] is None else f"{figure['ratio']:.2f}"
    return f"  {name:<30}{figure['ns']:>12.1f}{ratio:>10}"


def _size(size: int) -> str:
    return f"  {size >> 20} MiB" if size >= 1 << 20 else f"  {size >> 10} KiB"
