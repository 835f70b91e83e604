"""DLPack 1.x both ways: capsules of host memory made, and capsules of others consumed.

`Memory.__dlpack__` and `interop.describe` are what users call. The C part is `native/binding/dlpack.c`.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from . import formats
from ._ffi import ffi
from ._ffi import lib as _c
from .errors import InvalidArgument, NotSupported, OutOfMemory

if TYPE_CHECKING:
    from .handles import CData

__all__: list[str] = []

CPU = (1, 0)

#: What a device type means, and which types' memory the host sees: plain, or pinned or managed for a GPU.
DEVICES = {
    1: "CPU",
    2: "CUDA",
    3: "CUDA host",
    4: "OpenCL",
    7: "Vulkan",
    8: "Metal",
    9: "VPI",
    10: "ROCm",
    11: "ROCm host",
    12: "extension device",
    13: "CUDA managed",
    14: "oneAPI",
    15: "WebGPU",
    16: "Hexagon",
    17: "MAIA",
    18: "Trainium",
}
_HOST = (1, 3, 11, 13)

#: By format: DLPack's type code, and bits.
_TYPES = {
    **{formats.parse(f"i{size}")[0]: (0, 8 * size) for size in (1, 2, 4, 8)},
    **{formats.parse(f"u{size}")[0]: (1, 8 * size) for size in (1, 2, 4, 8)},
    **{formats.parse(f"f{size}")[0]: (2, 8 * size) for size in (2, 4, 8, 16)},
    **{formats.parse(f"c{size}")[0]: (5, 8 * size) for size in (8, 16)},
    "complex32": (5, 32),
    "|b1": (6, 8),
    "bfloat16": (4, 16),
    "float8_e3m4": (7, 8),
    "float8_e4m3": (8, 8),
    "float8_e4m3b11fnuz": (9, 8),
    "float8_e4m3fn": (10, 8),
    "float8_e4m3fnuz": (11, 8),
    "float8_e5m2": (12, 8),
    "float8_e5m2fnuz": (13, 8),
    "float8_e8m0fnu": (14, 8),
}
_FORMATS = {dtype: text for text, dtype in _TYPES.items()}

_READ_ONLY = _c.L0_DLPACK_READ_ONLY
_COPIED = _c.L0_DLPACK_COPIED
_export = _c.l0_dlpack_export
_end = _c.l0_dlpack_end


def export(
    owner: object,
    address: int,
    format: str,  # noqa: A002
    shape: tuple[int, ...],
    size: int,
    read_only: bool,
    stream: object,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """A capsule of C-contiguous host memory, which keeps `owner` alive; the rest is `__dlpack__`'s own arguments.

    Raises `BufferError` for what DLPack cannot say or the caller forbids, `InvalidArgument`, `OutOfMemory`.
    """
    if stream is not None:
        raise InvalidArgument(f"stream {stream!r}: host memory has no streams, only None will do")
    if dl_device is not None and tuple(dl_device) != CPU:
        raise BufferError(f"host memory is not exported to DLPack device {tuple(dl_device)}: only to {CPU}, the CPU")
    versioned = max_version is not None and max_version[0] >= 1
    if read_only and not copy and not versioned:
        raise BufferError(
            "read-only memory needs max_version=(1, 0) or newer: older DLPack cannot say it; or copy=True"
        )
    dtype = _TYPES.get(format)
    if dtype is None:
        raise BufferError(f"DLPack has no type for format {format!r}")
    flags = _COPIED if copy else _READ_ONLY if read_only else 0
    made: list[Any] = []
    if not _export(id(made), id(owner), address, *dtype, len(shape), shape, versioned, flags, size if copy else 0):
        raise OutOfMemory(f"there is no host memory for a DLPack tensor of {size} bytes")
    return made[0]


def count(owner: object = None) -> int:
    """Tensors given out, and not yet ended by whoever has them: those that keep an owner, or all."""
    return int(_c.l0_dlpack_count(id(owner) if owner is not None else 0))


def request(producer: Any) -> Any:
    """Another library's capsule, of memory that the host sees. Raises `NotSupported`, and what the producer raises."""
    device = producer.__dlpack_device__()
    if not isinstance(device, tuple) or len(device) != 2:
        raise InvalidArgument(f"__dlpack_device__ answered {device!r}, not a type and a number")
    require_host(*map(operator.index, device))
    # PyTorch tells the bytes of a lazily negated tensor, and not that they are to be negated.
    if hasattr(producer, "is_neg") and producer.is_neg():
        raise NotSupported("its elements are the negated ones of its memory: take the tensor's resolve_neg()")
    # The arguments came with later releases of the protocol.
    try:
        return producer.__dlpack__(max_version=(1, 3), copy=False)
    except TypeError:
        return producer.__dlpack__()


def require_host(kind: int, number: int) -> None:
    """Raises `NotSupported` for the memory of a device that the host may not touch."""
    if kind not in _HOST:
        name = DEVICES.get(kind, "unknown")
        raise NotSupported(
            f"it lies on DLPack device ({kind}, {number}), in {name} memory that the host may not touch: copy it to "
            "the host, or export it as a dma-buf where its library can"
        )


def take(capsule: object) -> CData:
    """Consumes a capsule: a `l0_dlpack*` that calls the producer's deleter when it goes, or at `ffi.release`.

    Raises `InvalidArgument` for what is no DLPack capsule or was consumed, `NotSupported` for another major version.
    """
    taken = ffi.gc(ffi.new("l0_dlpack*"), _end)
    answer = _c.l0_dlpack_take(id(capsule), taken)
    if answer == _c.L0_DLPACK_TOO_NEW:
        raise NotSupported("the DLPack capsule is of another major version than 1")
    if answer != _c.L0_DLPACK_TAKEN:
        raise InvalidArgument(f"{capsule!r} is no DLPack capsule, or was consumed before")
    return taken


def format_of(taken: CData) -> str:
    """The format of a tensor's elements. Raises `NotSupported` for vectors, handles and parts of bytes."""
    text = _FORMATS.get((taken.code, taken.bits))
    if text is None or taken.lanes != 1:
        raise NotSupported(
            f"elements of DLPack type {taken.code}, {taken.bits} bits, {taken.lanes} lanes have no format"
        )
    return text
