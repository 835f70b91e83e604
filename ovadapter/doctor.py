"""What works here: the loader, the driver, OpenVINO's NPU and its other devices, each tried on a small model."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import l0py

from . import discovery
from .context import NpuContext
from .devices import CpuContext, GpuContext
from .routes import ROUTES

if TYPE_CHECKING:
    import argparse

    from .verdict import Verdict

NOT_RUN = "not run on hardware: written against the headers of OpenVINO 2026.4"
"""What is said of the GPU plugin's tensors wherever they are shown."""

__all__ = ["add_arguments", "examine", "run"]

_SIZE = 4096
"""Bytes of the tensors that the routes are tried with: one page, which suits them all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line of `python -m ovadapter doctor`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout and nothing else")


def run(arguments: argparse.Namespace) -> int:
    """Prints what works; 0 when OpenVINO has an NPU and every route that this release knows works without a copy."""
    findings = examine()
    print(json.dumps(findings) if arguments.json else _as_text(findings))
    return 0 if findings["healthy"] else 1


def examine() -> dict[str, Any]:
    """Everything that `doctor` prints, for programs. Makes and frees a little memory; runs a model of one addition."""
    findings: dict[str, Any] = {"python": sys.version.split()[0], "healthy": False, "routes": {}, "devices": {}}
    try:
        import openvino as ov

        findings["openvino"] = ov.get_version()
        loader = l0py.loader.info()
        findings["loader"] = {"path": loader.path, "source": loader.source, "reason": loader.reason}
        npu = NpuContext()
        findings["loader"]["version"] = loader.version
        findings["device"] = npu.device.name
        findings["driver"] = "software" if npu.device.driver.is_software else str(npu.device.driver.properties.version)
        findings["features"] = vars(npu.features)
        routes = [route for route in ROUTES if route != "CPU_VA" or npu.features.cpu_va]
        findings["routes"] = _try_routes(npu, routes)
        findings["devices"] = {"CPU": _try_cpu(npu), "GPU": _try_gpu(npu)}
    except (l0py.Error, ModuleNotFoundError) as error:
        findings["problem"] = f"{type(error).__name__}: {error}"
        findings["loaders_in_process"] = discovery.loaders_in_process()
        return findings
    findings["healthy"] = all(route["zero_copy"] for route in findings["routes"].values())
    return findings


def _doubling() -> Any:
    """A model from x to y, one page each."""
    import openvino as ov
    from openvino import opset13 as ops

    parameter = ops.parameter([_SIZE // 4], ov.Type.f32, name="x")
    parameter.output(0).get_tensor().set_names({"x"})
    doubled = ops.add(parameter, parameter)
    doubled.output(0).get_tensor().set_names({"y"})
    return ov.Model([doubled], [parameter], "doctor")


def _try_routes(npu: NpuContext, routes: list[str]) -> dict[str, Any]:
    """Each route's outcome, on an input and an output of one page."""
    compiled = npu.core.compile_model(_doubling(), "NPU")
    outcomes = {}
    with l0py.Context(npu.device) as context:
        for route in routes:
            outcomes[route] = _try_route(npu, context, compiled, route)
    return outcomes


def _try_route(npu: NpuContext, context: l0py.Context, compiled: Any, route: str) -> dict[str, Any]:
    try:
        return _run_route(npu, context, compiled, route)
    except RuntimeError as error:  # l0py's and ovadapter's errors are of it, too
        return {"works": False, "zero_copy": False, "why": f"{type(error).__name__}: {error}"}


def _run_route(npu: NpuContext, context: l0py.Context, compiled: Any, route: str) -> dict[str, Any]:
    exportable = route == "SHARED_BUF" or not npu.features.cpu_va
    with (
        context.alloc_host(_SIZE, exportable=exportable) as x,
        context.alloc_host(_SIZE),  # between them: OpenVINO before 2026.3 refuses pages that touch
        context.alloc_host(_SIZE, exportable=exportable) as y,
    ):
        x.numpy("f4")[:] = range(_SIZE // 4)
        shape, type_ = (_SIZE // 4,), "f32"
        with (
            npu.remote_tensor(x, shape, type_, route=route) as source,
            npu.remote_tensor(y, shape, type_, route=route) as result,
            npu.bind(compiled.create_infer_request(), {"x": source}, {"y": result}) as binding,
        ):
            binding.infer()
            right = bool((y.numpy("f4") == 2 * x.numpy("f4")).all())
            verdicts: list[Verdict] = list(binding.verdicts().values())
        return {
            "works": right,
            "zero_copy": right and all(verdict.copied is False for verdict in verdicts),
            "why": "; ".join(map(str, verdicts)) if right else "the result is wrong",
        }


def _try_cpu(npu: NpuContext) -> dict[str, Any]:
    """Whether the CPU plugin works in the NPU's memory."""
    try:
        return _run_elsewhere(npu, CpuContext(npu.core))
    except RuntimeError as error:
        return {"works": False, "why": f"{type(error).__name__}: {error}"}


def _try_gpu(npu: NpuContext) -> dict[str, Any]:
    """The same for the GPU plugin: what is said of it here is all that is known of it."""
    try:
        outcome = _run_elsewhere(npu, GpuContext(npu.core))
    except RuntimeError as error:
        outcome = {"works": False, "why": f"{type(error).__name__}: {error}"}
    return {**outcome, "note": NOT_RUN}


def _run_elsewhere(npu: NpuContext, plugin: CpuContext | GpuContext) -> dict[str, Any]:
    """Whether a plugin sees what is written into memory after the hand-over, and its results arrive there."""
    request = npu.core.compile_model(_doubling(), plugin.device_name).create_infer_request()
    with (
        l0py.Context(npu.device) as context,
        context.alloc_host(_SIZE, exportable=True) as x,
        context.alloc_host(_SIZE, exportable=True) as y,
        plugin.bind(request, {"x": x}, {"y": y}) as binding,
    ):
        x.numpy("f4")[:] = range(_SIZE // 4)
        binding.infer()
        right = bool((y.numpy("f4") == 2 * x.numpy("f4")).all())
        route = binding.tensors["x"].route
    return {"works": right, "why": f"by the route {route}" if right else "the result is wrong"}


def _as_text(findings: dict[str, Any]) -> str:
    loader = findings.get("loader", {})
    rows = [
        ("python", findings["python"]),
        ("openvino", findings.get("openvino", "not installed")),
        ("loader", " ".join(filter(None, (loader.get("version"), loader.get("path"))))),
        ("", f"{loader['source']}: {loader['reason']}" if loader else ""),
        ("device", findings.get("device", "")),
        ("driver", findings.get("driver", "")),
        *((name.replace("_", " "), "yes" if there else "NO") for name, there in findings.get("features", {}).items()),
        *((name, _describe(outcome)) for name, outcome in findings["routes"].items()),
        *((f"{name} plugin", _describe_device(outcome)) for name, outcome in findings["devices"].items()),
        ("problem", findings.get("problem", "")),
        ("verdict", "healthy: memory goes in without a copy" if findings["healthy"] else "NOT healthy"),
    ]
    return "\n".join(f"{name:<16}{text}" for name, text in rows if text)


def _describe(outcome: dict[str, Any]) -> str:
    """In short where all is well; `--json` has the reasons."""
    if outcome["zero_copy"]:
        return "zero copy"
    return f"{'works, not shown to be zero copy' if outcome['works'] else 'NO'}: {outcome['why']}"


def _describe_device(outcome: dict[str, Any]) -> str:
    note = f" ({outcome['note']})" if "note" in outcome else ""
    why, _, _ = outcome["why"].partition(". ")  # what OpenVINO says of its files is for `--json`
    return f"{'works' if outcome['works'] else 'NO'}{note}: {why}"
