"""How handles travel through OpenVINO's remote properties: the one place that knows.

OpenVINO's Python binding has no `void*`: a string is read as hexadecimal, everything else is refused. Where a property
is a number, a string is read as decimal. The GPU plugin's names and types are those of OpenVINO 2026.4's
`intel_gpu/remote_properties.hpp`, which the wheel holds.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import openvino as ov

__all__ = [
    "TENSOR_TYPES",
    "cl_context",
    "cpu_va",
    "gpu_buffer",
    "gpu_pointer",
    "gpu_usm",
    "l0_context",
    "mem_handle",
    "shared_buf",
]

TENSOR_TYPES = ("BINDED", "INPUT", "OUTPUT")
"""OpenVINO's names for how a request uses a tensor; `BINDED` fits both directions."""


def shared_buf(fd: int, tensor_type: str) -> dict[str, str]:
    """Properties of a tensor that is imported by fd. OpenVINO takes fd 0 for none, and does not close the fd."""
    return {"MEM_TYPE": "SHARED_BUF", "MEM_HANDLE": hex(fd), "TENSOR_TYPE": tensor_type}


def cpu_va(address: int, tensor_type: str) -> dict[str, str]:
    """Properties of a tensor that is imported by its address in this process: OpenVINO 2026.0 and newer."""
    return {"MEM_TYPE": "CPU_VA", "MEM_HANDLE": hex(address), "TENSOR_TYPE": tensor_type}


def gpu_buffer(handle: int) -> dict[str, str]:
    """Properties of a GPU tensor behind a dma-buf's fd, or on Windows behind an NT handle. Not run on hardware."""
    return {
        "SHARED_MEM_TYPE": "BUFFER_FROM_HANDLE",
        "OS_HANDLE": hex(handle) if sys.platform == "win32" else str(handle),
    }


def gpu_pointer(address: int, size: int, *, writable: bool) -> dict[str, str]:
    """Properties of a GPU tensor over this process's own memory. Not run on hardware."""
    access = "READ_WRITE" if writable else "READ"
    return {"SHARED_MEM_TYPE": "CPU_VA", "CPU_VA": hex(address), "CPU_VA_SIZE": str(size), "CPU_VA_ACCESS": access}


def gpu_usm(address: int) -> dict[str, str]:
    """Properties of a GPU tensor over USM of the plugin's OpenCL context. Not run on hardware."""
    return {"SHARED_MEM_TYPE": "USM_USER_BUFFER", "MEM_HANDLE": hex(address)}


def cl_context(handle: int, device_index: int) -> dict[str, str]:
    """Properties of a GPU context in somebody's `cl_context`. Not run on hardware."""
    return {"CONTEXT_TYPE": "OCL", "OCL_CONTEXT": hex(handle), "OCL_CONTEXT_DEVICE_ID": str(device_index)}


def mem_handle(tensor: ov.RemoteTensor) -> int:
    """Where a remote tensor's memory lies in this process; for a region of one, where the whole lies."""
    return _pointer(tensor.get_params()["MEM_HANDLE"])


def l0_context(context: ov.RemoteContext) -> int:
    """The handle of OpenVINO's Level Zero context."""
    return _pointer(context.get_params()["L0_CONTEXT"])


def _pointer(value: ov.OVAny) -> int:
    return int(value.astype(str), 16)
