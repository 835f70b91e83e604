"""The rules by which OpenVINO's NPU plugin uses memory in place or copies it, in words: for verdicts and errors."""

from __future__ import annotations

__all__ = [
    "ALIGNED",
    "CPU_VA",
    "CPU_VA_MISSING",
    "DEVICE_MEMORY",
    "GPU_LINES",
    "HOST_BLIND",
    "IMPORT_MISSING",
    "KEEPER",
    "MUTABLE_MISSING",
    "OUTSIDE",
    "OWN_CONTEXT",
    "SHAPE_TENSOR",
    "SHARED_BUF",
    "UNALIGNED",
]

SHARED_BUF = "a remote tensor imported by fd is used in place, or refused"
CPU_VA = "a remote tensor imported by address is used in place, or refused"
KEEPER = "a tensor inside imported memory is found in the plugin's own pool and used in place"
ALIGNED = (
    "a plain tensor whose address and size are multiples of 4096 is imported anew at every inference, or else copied"
)
UNALIGNED = "a plain tensor whose address or size is no multiple of 4096 is copied at every inference"
OWN_CONTEXT = "memory in OpenVINO's own context is used in place when OpenVINO allocated it, and copied when others did"
OUTSIDE = "memory that only this process can reach by address must be whole pages of 4096 bytes, or it is copied"
DEVICE_MEMORY = "the host may not touch device memory: it has no pages to import, and nobody could copy it"
MUTABLE_MISSING = (
    "a driver without mutable command lists (ZE_experimental_mutable_command_list) has every tensor copied"
)
SHAPE_TENSOR = "a tensor of dynamic shape is copied at every inference where a shape tensor bounds it"
CPU_VA_MISSING = "this OpenVINO imports memory by fd alone (2026.0 brought import by address) and copies what has none"
IMPORT_MISSING = "this driver imports no memory of that kind, and OpenVINO copies what is not imported"
GPU_LINES = "the GPU plugin takes memory by address when address and size are multiples of 64"
HOST_BLIND = "the CPU plugin uses what the host may touch"
