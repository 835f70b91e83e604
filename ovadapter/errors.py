"""What can go wrong between Level Zero memory and an OpenVINO request. Each class is also the builtin that fits."""

from __future__ import annotations

import l0py

__all__ = [
    "AdapterError",
    "CopyRequired",
    "GpuMissing",
    "ImportRefused",
    "NpuMissing",
    "TensorMismatch",
    "UnknownTensor",
    "VerdictUnknown",
]


class AdapterError(l0py.Error):
    """The base of all errors of this package."""


class NpuMissing(AdapterError):
    """OpenVINO has no NPU device, or sees another Level Zero than l0py does; the text says why and what helps."""


class GpuMissing(AdapterError):
    """OpenVINO has no GPU device; the text says why."""


class CopyRequired(AdapterError, ValueError):
    """The memory cannot be used in place. `rule` says why, `way_out` what to do; `allow_copy=True` accepts the copy."""

    def __init__(self, rule: str, way_out: str) -> None:
        super().__init__(f"{rule}. {way_out}")
        self.rule = rule
        self.way_out = way_out


class TensorMismatch(AdapterError, ValueError):
    """Memory, shape or element type does not fit: too small, wrong shape, dynamic, read-only, overlapping."""


class UnknownTensor(AdapterError, LookupError):
    """The model has no such tensor; the text lists those that it has."""


class ImportRefused(AdapterError):
    """OpenVINO or the driver refused to import the memory; the text carries its reason."""


class VerdictUnknown(AdapterError, ValueError):
    """A verdict was used as a truth value, but nobody can tell whether the tensor was copied."""
