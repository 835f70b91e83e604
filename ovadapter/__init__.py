"""Level Zero memory in OpenVINO NPU tensors, without a copy.

    npu = ovadapter.NpuContext(core)
    with npu.bind(request, inputs={"image": memory}, outputs={"boxes": results}) as binding:
        binding.infer()
        assert not binding.verdict("image")

Memory is l0py's, a dma-buf's file descriptor or anybody's page-aligned array; `share` brings it from another driver and
back. A route on which OpenVINO would copy raises `CopyRequired`, which names the rule and the way out.
"""

from __future__ import annotations

from .binding import Binding
from .context import NpuContext
from .devices import CpuContext, GpuContext
from .errors import (
    AdapterError,
    CopyRequired,
    GpuMissing,
    ImportRefused,
    NpuMissing,
    TensorMismatch,
    UnknownTensor,
    VerdictUnknown,
)
from .ring import Ring, Slot
from .shared import Shared
from .sharing import share
from .tensor import Tensor
from .verdict import Verdict, was_copied

__all__ = [
    "AdapterError",
    "Binding",
    "CopyRequired",
    "CpuContext",
    "GpuContext",
    "GpuMissing",
    "ImportRefused",
    "NpuContext",
    "NpuMissing",
    "Ring",
    "Shared",
    "Slot",
    "Tensor",
    "TensorMismatch",
    "UnknownTensor",
    "Verdict",
    "VerdictUnknown",
    "share",
    "was_copied",
]
