"""What this machine and this process have for Level Zero: for a look, and for a bug report."""

from __future__ import annotations

import os
import platform
import sys
from typing import TYPE_CHECKING, Any

from . import __version__, loader
from .driver import drivers
from .errors import Error, InvalidArgument
from .handles import live_objects

if TYPE_CHECKING:
    from pathlib import Path

    from .device import Device

__all__ = ["doctor", "info"]

_VARIABLES = ("LD_LIBRARY_PATH", "LD_PRELOAD")

#: Intel's NPU driver in user space, by its name now and before.
_NPU_LIBRARIES = ("libze_intel_npu.so.1", "libze_intel_vpu.so.1")


def info() -> dict[str, Any]:
    """The loader, the drivers and devices, the environment and the live objects; binds and initialises Level Zero.

    What fails is told in `error` and leaves the rest empty.
    """
    told: dict[str, Any] = {
        "l0py": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "environment": _environment(),
        "software_drivers": {name: str(loader.software_driver_path(name)) for name in loader.SOFTWARE_DRIVERS},
        "loader": None,
        "drivers": [],
        "error": None,
    }
    try:
        bound = loader.info()
        told["loader"] = {**bound._asdict(), "version": bound.version}
        found = drivers()
        told["loader"]["version"] = bound.version  # old loaders know it only now
        for driver in found:
            told["drivers"].append(
                {
                    "kind": driver.kind,
                    "software": driver.is_software,
                    "version": driver.properties.version,
                    "api": ".".join(map(str, driver.api_version)),
                    "extensions": {name: ".".join(map(str, v)) for name, v in driver.extensions.items()},
                    "devices": [_device(device) for device in driver.devices()],
                }
            )
    except Error as error:
        told["error"] = str(error)
    told["live_objects"] = live_objects()
    return told


def _device(device: Device) -> dict[str, Any]:
    properties = device.properties
    external = device.external_memory
    return {
        "name": properties.name,
        "type": properties.type,
        "uuid": properties.uuid.hex(),
        "max_alloc_size": properties.max_alloc_size,
        "memory": [memory.size for memory in device.memory],
        "imports": sorted(external.imports),
        "exports": sorted(external.exports),
    }


def _environment() -> dict[str, str]:
    names = [name for name in os.environ if name.startswith(("ZE_", "ZEL_", "ZET_", "L0PY_")) or name in _VARIABLES]
    return {name: os.environ[name] for name in sorted(names)}


def doctor() -> list[tuple[bool, str, str]]:
    """One line for each thing that must be right: whether it is, what was found, and what to do about it."""
    told = info()
    lines = [_files(), *_nodes(), _loader(told), *_alternatives(), _drivers(told)]
    npus, gpus = _names(told, "npu"), _names(told, "gpu")
    lines.append((bool(npus), f"NPU: {npus or 'none'}", "" if npus else _npu_advice(told)))
    if gpus:  # none is nothing wrong
        lines.append((True, f"GPU: {gpus}", ""))
    return lines


def _names(told: dict[str, Any], kind: str) -> str:
    devices = (device for driver in told["drivers"] for device in driver["devices"])
    return ", ".join(device["name"] for device in devices if device["type"] == kind)


def _npu_advice(told: dict[str, Any]) -> str:
    """Why there is none, by looking, and what stands in for one."""
    wanted = _wanted()
    if told["loader"] is None:
        return "first see to the loader"
    stand_in = f"L0PY_SOFTDRIVER={'npu,gpu' if 'gpu' in wanted else '1'} stands in for one"
    causes = [] if wanted or sys.platform == "win32" else _npu_causes()
    return "; ".join([*causes, stand_in])


def _wanted() -> tuple[str, ...]:
    try:
        return loader.software_drivers_wanted() or ()
    except InvalidArgument:
        return ()


def _npu_causes() -> list[str]:
    """Of a real one. Nodes that may not be used have a line of their own."""
    from pathlib import Path

    causes = []
    if not any(Path("/dev/accel").glob("accel*")):
        causes.append("there is no /dev/accel/accel*: no NPU, or its kernel driver (intel_vpu) is not loaded")
    if all(loader.driver_problem(name) for name in _NPU_LIBRARIES):
        causes.append(f"Intel's driver is not installed: neither {' nor '.join(_NPU_LIBRARIES)} can be opened")
    return causes


def _files() -> tuple[bool, str, str]:
    drivers = [loader.software_driver_path(name) for name in loader.SOFTWARE_DRIVERS]
    missing = [path for path in (*drivers, loader.embedded_path()) if not path.exists()]
    if missing:
        return False, f"missing: {', '.join(map(str, missing))}", "install l0py again"
    return True, f"embedded loader and software drivers in {loader.native_dir()}", ""


def _nodes() -> list[tuple[bool, str, str]]:
    """Device nodes of NPUs and GPUs; none is nothing wrong."""
    from pathlib import Path

    nodes = [*sorted(Path("/dev/accel").glob("accel*")), *sorted(Path("/dev/dri").glob("renderD*"))]
    return [_node(node) for node in nodes]


def _node(node: Path) -> tuple[bool, str, str]:
    if os.access(node, os.R_OK | os.W_OK):
        return True, f"{node} may be used", ""
    return False, f"{node} may not be used by this user", f"join the group that owns it ({_group(node)})"


def _group(node: Path) -> str:
    try:
        return node.group()
    except (KeyError, OSError):
        return "render"


def _loader(told: dict[str, Any]) -> tuple[bool, str, str]:
    bound = told["loader"]
    if bound is None:
        advice = "correct L0PY_LOADER, or unset it" if os.environ.get("L0PY_LOADER") else ""
        return False, f"no loader: {told['error']}", advice
    return True, f"{bound['source']} loader {bound['version']}: {bound['path']} ({bound['reason']})", ""


def _alternatives() -> list[tuple[bool, str, str]]:
    """What the environment names as drivers and is none."""
    lines = []
    for name in filter(None, os.environ.get("ZE_ENABLE_ALT_DRIVERS", "").split(",")):
        if problem := loader.driver_problem(name):
            found = f"ZE_ENABLE_ALT_DRIVERS names {name}, which loaders pass over: {problem}"
            lines.append((False, found, "correct the entry, or take it out"))
    return lines


def _drivers(told: dict[str, Any]) -> tuple[bool, str, str]:
    if told["loader"] is None:
        return False, "no driver: there is no loader to find one", ""
    if not told["drivers"]:
        return False, "no driver", str(told["error"])
    kinds = (f"{d['kind']}{' (software)' if d['software'] else ''}, API {d['api']}" for d in told["drivers"])
    return told["error"] is None, f"drivers: {'; '.join(kinds)}", told["error"] or ""


def print_info(told: dict[str, Any]) -> None:
    """The same as `info()` for reading."""
    print(f"l0py {told['l0py']}, Python {told['python']}, {told['system']}")
    for name, value in told["environment"].items():
        print(f"  {name}={value}")
    bound = told["loader"]
    if bound:
        print(f"loader {bound['version']} ({bound['source']}): {bound['path']}")
        print(f"  {bound['reason']}; {bound['functions']} functions")
    for driver in told["drivers"]:
        print(f"driver: {driver['kind']}{', software' if driver['software'] else ''}, API {driver['api']}")
        for device in driver["devices"]:
            print(f"  {device['name']} ({device['type']}), uuid {device['uuid']}")
            print(f"    memory {device['memory']} bytes, at most {device['max_alloc_size']} at once")
            print(f"    imports {', '.join(device['imports'])}; exports {', '.join(device['exports'])}")
        for name, version in driver["extensions"].items():
            print(f"  {name} {version}")
    if told["error"]:
        print(told["error"], file=sys.stderr)
