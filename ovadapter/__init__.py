"""Level Zero memory in OpenVINO NPU tensors, without a copy.

    npu = ovadapter.NpuContext(core)
    with npu.bind(request, inputs={"image": memory}, outputs={"boxes": results}) as binding:
        binding.infer()
        assert not binding.verdict("image")

Memory is l0py's, a dma-buf's file descriptor or a page-aligned NumPy array. A route on which OpenVINO would copy raises
`CopyRequired`, which names the rule and the way out.
"""

from __future__ import annotations

from .binding import Binding
from .context import NpuContext
from .errors import (
    AdapterError,
    CopyRequired,
    ImportRefused,
    NpuMissing,
    TensorMismatch,
    UnknownTensor,
    VerdictUnknown,
)
from .ring import Ring, Slot
from .tensor import Tensor
from .verdict import Verdict, was_copied

__all__ = [
    "AdapterError",
    "Binding",
    "CopyRequired",
    "ImportRefused",
    "NpuContext",
    "NpuMissing",
    "Ring",
    "Slot",
    "Tensor",
    "TensorMismatch",
    "UnknownTensor",
    "Verdict",
    "VerdictUnknown",
    "was_copied",
]
