"""Finding OpenVINO's NPU through the loader that l0py uses; and where there is none, saying why and what helps."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import l0py
from l0py import loader
from l0py.errors import check

from .errors import NpuMissing
from .routes import Features
from .tensor import reason

if TYPE_CHECKING:
    import openvino as ov

__all__ = ["connect", "features", "loaders_in_process", "openvino_version"]

LOADER_FUNCTIONS = ("zeCommandListHostSynchronize", "zeInit", "zeDriverGet", "zeMemAllocHost", "zeContextCreate")
"""Of the functions that OpenVINO demands, the youngest and some of the rest: a stub may lack any."""

MUTABLE_LISTS = "ZE_experimental_mutable_command_list"
MUTABLE_FUNCTIONS = ("zeCommandListGetNextCommandIdExp", "zeCommandListUpdateMutableCommandsExp")
SYSTEM_MEMORY = "ZE_extension_external_memmap_sysmem"
IMPORT_STANDARD_ALLOCATION = 0x100
"""A flag of Intel's NPU driver that the specification does not have."""


def connect(core: ov.Core) -> ov.RemoteContext:
    """OpenVINO's NPU context, after l0py's loader is in the process; raises NpuMissing with the reason."""
    try:
        bound = loader.bind()
    except l0py.LoaderNotFound as error:
        raise NpuMissing(f"there is no Level Zero loader: {error}") from error
    _require_one_loader()
    try:
        context = core.get_default_context("NPU")
    except RuntimeError as error:
        raise NpuMissing(f"OpenVINO has no NPU: {_why(bound)}. OpenVINO says: {reason(error)}") from error
    _require_one_loader()
    return context


def _why(bound: loader.LoaderInfo) -> str:
    lacking = [name for name in LOADER_FUNCTIONS if not l0py.lib.has(name)]
    if lacking:
        way_out = {
            "override": "Unset L0PY_LOADER",
            "process": "Import l0py and make the NpuContext before anything else loads a loader",
        }.get(bound.source, "Install a loader of 1.10 or newer")
        return f"the loader {bound.path} ({bound.reason}) lacks {', '.join(lacking)}, which it needs. {way_out}"
    try:
        l0py.find_device("npu")  # the plugin uses the first one, too
    except l0py.Error as error:
        return str(error)
    import openvino as ov

    try:
        ov.Core().get_default_context("NPU")
    except RuntimeError:
        return "l0py sees one, but OpenVINO's plugin does not start on it. OV_NPU_LOG_LEVEL=LOG_DEBUG makes it say why"
    return (
        "this Core looked for Level Zero before l0py had chosen a loader, and each Core looks once. "
        "Make a new openvino.Core, and the NpuContext before a Core's devices are used"
    )


def loaders_in_process() -> list[str]:
    """The files of all Level Zero loaders that this process has mapped (Linux; empty elsewhere)."""
    if sys.platform != "linux":
        return []
    files: dict[str, str] = {}
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and Path(fields[5]).name.startswith("libze_loader.so"):
            files[fields[3] + fields[4]] = fields[5]  # device and inode: one file may have several names
    return sorted(files.values())


def _require_one_loader() -> None:
    found = loaders_in_process()
    if len(found) > 1:
        raise NpuMissing(
            f"there are two Level Zero loaders in this process: {' and '.join(found)}. l0py uses {loader.bind().path}. "
            "Let both use one: unset L0PY_LOADER, or import l0py and make the NpuContext before the Core is used"
        )


def openvino_version() -> tuple[int, int]:
    """Year and number of the OpenVINO release, (2026, 4)."""
    import openvino as ov

    found = re.match(r"(\d+)\.(\d+)", ov.get_version())
    return (int(found[1]), int(found[2])) if found else (0, 0)


def features(device: l0py.Device) -> Features:
    """What can be done without a copy. Calls zeDriverGetExtensionProperties and zeDeviceGetExternalMemoryProperties."""
    extensions = device.driver.extensions
    ffi, lib = l0py.lib.ffi, l0py.lib
    external: Any = ffi.new(
        "ze_device_external_memory_properties_t*",
        {"stype": lib.ZE_STRUCTURE_TYPE_DEVICE_EXTERNAL_MEMORY_PROPERTIES},
    )
    result = lib.zeDeviceGetExternalMemoryProperties(device.handle, external)
    check(result, "zeDeviceGetExternalMemoryProperties", driver=device.driver.handle)
    imports = external.memoryAllocationImportTypes
    handles = (
        lib.ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_WIN32
        if sys.platform == "win32"
        else lib.ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF
    )
    return Features(
        mutable_lists=MUTABLE_LISTS in extensions and all(lib.has(name) for name in MUTABLE_FUNCTIONS),
        import_fd=bool(imports & handles),
        import_address=SYSTEM_MEMORY in extensions or bool(imports & IMPORT_STANDARD_ALLOCATION),
        cpu_va=openvino_version() >= (2026, 0),
        touching_pages=openvino_version() >= (2026, 3),
    )
