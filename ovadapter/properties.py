"""How handles travel through OpenVINO's remote properties: the one place that knows.

OpenVINO's Python binding has no `void*`: a string is read as hexadecimal, everything else is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import openvino as ov

__all__ = ["TENSOR_TYPES", "cpu_va", "l0_context", "mem_handle", "shared_buf"]

TENSOR_TYPES = ("BINDED", "INPUT", "OUTPUT")
"""OpenVINO's names for how a request uses a tensor; `BINDED` fits both directions."""


def shared_buf(fd: int, tensor_type: str) -> dict[str, str]:
    """Properties of a tensor that is imported by fd. OpenVINO takes fd 0 for none, and does not close the fd."""
    return {"MEM_TYPE": "SHARED_BUF", "MEM_HANDLE": hex(fd), "TENSOR_TYPE": tensor_type}


def cpu_va(address: int, tensor_type: str) -> dict[str, str]:
    """Properties of a tensor that is imported by its address in this process: OpenVINO 2026.0 and newer."""
    return {"MEM_TYPE": "CPU_VA", "MEM_HANDLE": hex(address), "TENSOR_TYPE": tensor_type}


def mem_handle(tensor: ov.RemoteTensor) -> int:
    """Where a remote tensor's memory lies in this process; for a region of one, where the whole lies."""
    return _pointer(tensor.get_params()["MEM_HANDLE"])


def l0_context(context: ov.RemoteContext) -> int:
    """The handle of OpenVINO's Level Zero context."""
    return _pointer(context.get_params()["L0_CONTEXT"])


def _pointer(value: ov.OVAny) -> int:
    return int(value.astype(str), 16)
