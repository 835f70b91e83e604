"""Memory of other libraries, seen in one way; and ours, for them.

`describe` looks through the protocols by which libraries share arrays. For our own objects there are DLPack and
`__array_interface__` (on `Memory` and on `Typed`), and two small protocols that carry Level Zero handles, so that
neither side need import the other: `__ze_memory__` and `__ze_context__`, with PyCapsules of the same for C.

    __ze_context__() -> (1, handle)
    __ze_memory__()  -> (1, context, address, size, flags)

All are ints: 1 is the version, `context` and `handle` a `ze_context_handle_t`, `size` in bytes; `flags` has the bits
`DEVICE_ONLY` (the host may not touch it), `READ_ONLY` (neither side may write) and `SHARED` (it moves between host and
device); other bits are 0. The numbers are borrowed: they mean something while the object that gave them lives and is
not closed. A consumer refuses versions that it does not know.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

from . import dlpack, formats, lib
from ._ffi import ffi
from ._ffi import lib as _c
from .errors import Error, InvalidArgument, NotSupported, OutOfMemory
from .handles import Handle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Self

__all__ = ["DEVICE_ONLY", "READ_ONLY", "SHARED", "Foreign", "Typed", "capsule", "context_handle", "describe"]

DEVICE_ONLY: int = _c.L0_ZE_DEVICE_ONLY
READ_ONLY: int = _c.L0_ZE_READ_ONLY
SHARED: int = _c.L0_ZE_SHARED

_MOST_DIMENSIONS = 64  # as in NumPy
_CONTEXT_CAPSULE = "l0py.ze_context_handle"
_MEMORY_CAPSULE = "l0py.ze_memory"


class Foreign(NamedTuple):
    """An array in memory, whoever owns it; a context manager that lets go of it.

    `address` is that of its first element, `size` the bytes of all elements, `shape` in elements, `format` a NumPy type
    string (`"<f4"`) or the name of a type that has none (`"bfloat16"`), `strides` in bytes, None when it is
    C-contiguous. `owner` keeps the memory alive. `protocol` is what it was found by: `"buffer"`,
    `"__array_interface__"`, `"dlpack"`, `"__sycl_usm_array_interface__"`, `"__ze_memory__"` or the capsule's name.
    `host_visible` says whether the host may read it, None where nobody tells; `context` is the
    `ze_context_handle_t` of Level Zero memory, else 0.
    """

    address: int
    size: int
    shape: tuple[int, ...]
    format: str
    strides: tuple[int, ...] | None
    read_only: bool
    owner: object
    protocol: str
    host_visible: bool | None = True
    context: int = 0

    def release(self) -> None:
        """Lets go of the memory at once, where the owner is a lease (a buffer, a DLPack tensor)."""
        if isinstance(self.owner, ffi.CData):
            ffi.release(self.owner)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.release()


def describe(obj: Any) -> Foreign:
    """Where the memory of an array is, and what lies in it. Nothing is copied.

    `obj` has `__ze_memory__`, the buffer protocol, `__array_interface__`, `__sycl_usm_array_interface__` or
    `__dlpack__` (of memory that the host sees), which are tried in this order; or it is a capsule of DLPack (which is
    consumed) or of `capsule()`. Raises TypeError for anything else, `InvalidArgument` for a description that cannot be
    true, `NotSupported` for memory of other devices, and what the producer itself raises.
    """
    name = _capsule_name(obj)
    if name is not None:
        return _from_capsule(obj, name)
    if hasattr(obj, "__ze_memory__"):
        return _read(_from_ze_memory, "__ze_memory__", obj)
    refused: Exception | None = None
    try:
        with memoryview(obj) as view:
            if view.c_contiguous or view.ndim == 1:
                return _from_buffer(obj, view)
            refused = BufferError(f"a buffer of strides {view.strides} does not tell where it begins")
    except Error:
        raise
    except TypeError:
        pass
    except (BufferError, ValueError) as error:
        refused = error
    for protocol, reader in _READERS.items():
        if hasattr(obj, protocol):
            return _read(reader, protocol, obj)
    if refused is not None:
        raise InvalidArgument(f"{type(obj).__name__} cannot be shared: {refused}") from refused
    raise TypeError(
        f"{type(obj).__name__} shares no memory: it has neither the buffer protocol nor {', '.join(_READERS)} nor "
        "__ze_memory__"
    )


def _read(reader: Callable[[Any], Foreign], protocol: str, obj: Any) -> Foreign:
    try:
        return reader(obj)
    except (TypeError, KeyError, AttributeError, OverflowError) as error:
        raise InvalidArgument(f"{protocol} of {type(obj).__name__} cannot be understood: {error!r}") from error


def _foreign(
    address: SupportsIndex,
    shape: Sequence[SupportsIndex],
    text: str,
    strides: Sequence[SupportsIndex] | None,
    read_only: bool,
    owner: object,
    protocol: str,
    host_visible: bool | None = True,
) -> Foreign:
    """What a producer said, if it can be true; else its lease ends at once. Strides in bytes."""
    try:
        text, item = formats.parse(text)
        start, extents = operator.index(address), tuple(map(operator.index, shape))
        steps = None if strides is None else tuple(map(operator.index, strides))
        size = item * math.prod(extents)
        steps = _checked_layout(start, extents, item, size, steps, protocol)
    except BaseException:
        if isinstance(owner, ffi.CData):
            ffi.release(owner)
        raise
    return Foreign(start, size, extents, text, steps, bool(read_only), owner, protocol, host_visible)


def _checked_layout(
    start: int, extents: tuple[int, ...], item: int, size: int, steps: tuple[int, ...] | None, protocol: str
) -> tuple[int, ...] | None:
    """The strides, None where they are C-contiguous. Raises `InvalidArgument` for what no memory can be."""
    if min(extents, default=0) < 0 or size >= 1 << 63:
        raise InvalidArgument(f"{protocol} tells of an impossible shape: {extents} of {item}-byte elements")
    if steps is not None and len(steps) != len(extents):
        raise InvalidArgument(f"{protocol} tells of {len(steps)} strides for {len(extents)} dimensions")
    if steps is None or _is_contiguous(extents, steps, item):
        first, last, steps = 0, size, None
    else:
        reach = [(extent - 1) * step for extent, step in zip(extents, steps, strict=True)]
        first, last = sum(min(0, far) for far in reach), sum(max(0, far) for far in reach) + item
    if start < 0 or (size and not (start > 0 and start + first > 0 and start + last <= 1 << 64)):
        raise InvalidArgument(f"{protocol} tells of {size} bytes at {start:#x}, where no memory can be")
    return steps


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...], item: int) -> bool:
    if 0 in shape:
        return True
    expected = item
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def _from_buffer(obj: Any, view: memoryview) -> Foreign:
    """A buffer that is C-contiguous, or has one dimension: then its first element alone is."""
    data = ffi.from_buffer(obj if view.c_contiguous else view[:1])
    text = formats.of_buffer(view.format, view.itemsize)
    return _foreign(lib.address(data), view.shape or (), text, view.strides, view.readonly, data, "buffer")


def _from_array_interface(obj: Any) -> Foreign:
    protocol = "__array_interface__"
    interface = _dict(obj.__array_interface__, protocol)
    if interface.get("mask") is not None:
        raise InvalidArgument("an array with a mask cannot be shared")
    shape, text, strides = interface["shape"], interface["typestr"], interface.get("strides")
    data = interface.get("data")
    if isinstance(data, tuple):
        address, read_only = _pair(data, protocol)
        return _foreign(address, shape, text, strides, read_only, obj, protocol)
    # A buffer, or the object itself is one: that is what keeps the memory, also of an object that can be closed.
    buffer = obj if data is None else data
    with memoryview(buffer) as view:
        read_only = view.readonly
    offset = operator.index(interface.get("offset", 0))
    held = ffi.from_buffer(buffer)
    found = _foreign(lib.address(held) + offset, shape, text, strides, read_only, held, protocol)
    if not 0 <= offset <= len(held) - found.size or found.strides is not None:
        found.release()
        raise InvalidArgument(f"{protocol} tells of other bytes than the {len(held)} of its buffer")
    return found


def _from_sycl(obj: Any) -> Foreign:
    """SYCL's unified shared memory. Its `syclobj` is kept with the object, and never interpreted.

    The flag beside the address is not relied on: what it means differs between the specification and its users.
    """
    protocol = "__sycl_usm_array_interface__"
    interface = _dict(obj.__sycl_usm_array_interface__, protocol)
    version = interface.get("version")
    if version != 1:
        raise NotSupported(f"{protocol} of version {version!r} is not known, only 1")
    if interface.get("syclobj") is None:
        raise InvalidArgument(f"{protocol} names no syclobj")
    address, _ = _pair(interface["data"], protocol)
    text, item = formats.parse(interface["typestr"])
    strides = interface.get("strides")
    steps = None if strides is None else [item * operator.index(stride) for stride in strides]
    start = operator.index(address)
    if start:
        start += item * operator.index(interface.get("offset", 0))
    usm_type = obj.get_usm_type() if hasattr(obj, "get_usm_type") else getattr(obj, "usm_type", None)
    visible = None if usm_type is None else {"host": True, "shared": True, "device": False}.get(usm_type)
    return _foreign(start, interface["shape"], text, steps, False, (obj, interface), protocol, visible)


def _from_dlpack(obj: Any) -> Foreign:
    return _from_dlpack_capsule(dlpack.request(obj))


def _from_dlpack_capsule(made: object) -> Foreign:
    taken = dlpack.take(made)
    try:
        dlpack.require_host(taken.device_type, taken.device_id)
        if taken.flags & _c.L0_DLPACK_COPIED:
            raise NotSupported("its library made a copy for DLPack, and can only do that")
        text, ndim = dlpack.format_of(taken), taken.ndim
        item = formats.parse(text)[1]
        if not 0 <= ndim <= _MOST_DIMENSIONS or (ndim and taken.shape == ffi.NULL):
            raise InvalidArgument(f"DLPack tells of an impossible shape: {ndim} dimensions at {taken.shape}")
        shape = ffi.unpack(taken.shape, ndim) if ndim else []
        strides = None if taken.strides == ffi.NULL or not ndim else ffi.unpack(taken.strides, ndim)
        steps = None if strides is None else [item * stride for stride in strides]
        start = taken.data + taken.byte_offset if taken.data else 0
        read_only = bool(taken.flags & _c.L0_DLPACK_READ_ONLY)
        return _foreign(start, shape, text, steps, read_only, taken, "dlpack")
    except BaseException:
        ffi.release(taken)  # at once: the exception's traceback refers to it
        raise


def _from_ze_memory(obj: Any) -> Foreign:
    """Level Zero memory; as the array that the object also is, where it is one."""
    context, address, size, flags = _ze_memory(obj)
    if not flags & DEVICE_ONLY and hasattr(obj, "__array_interface__"):
        found = _from_array_interface(obj)
        if not address <= found.address <= found.address + found.size <= address + size:
            found.release()
            raise InvalidArgument("__array_interface__ tells of other memory than __ze_memory__")
        read_only = found.read_only or bool(flags & READ_ONLY)
        return found._replace(protocol="__ze_memory__", context=context, read_only=read_only)
    found = _foreign(address, (size,), "|u1", None, bool(flags & READ_ONLY), _pinned(obj), "__ze_memory__")
    return found._replace(host_visible=not flags & DEVICE_ONLY, context=context)


def _ze_memory(obj: Any) -> tuple[int, int, int, int]:
    context, address, size, flags = _numbers(obj.__ze_memory__(), 5, "__ze_memory__")
    if context == 0 or address == 0 or size == 0:
        raise InvalidArgument(f"__ze_memory__ tells of {size} bytes at {address:#x} of context {context:#x}")
    return context, address, size, flags


def _numbers(answer: Any, count: int, protocol: str) -> Any:
    """What follows the version in an answer of one of our protocols."""
    numbers = tuple(map(operator.index, answer))
    if numbers[:1] != (1,):
        raise NotSupported(f"{protocol} of version {numbers[:1]} is not known, only 1")
    if len(numbers) != count or not all(0 <= number < 1 << 64 for number in numbers):
        raise InvalidArgument(f"{protocol} answered {answer!r}, not {count} unsigned numbers")
    return numbers[1:]


def _pinned(obj: Any) -> object:
    """What keeps the native object of ours, even over `close()`; others' own object."""
    return obj.keep() if isinstance(obj, Handle) else obj


def _dict(interface: Any, protocol: str) -> dict[str, Any]:
    if not isinstance(interface, dict) or not interface.keys() >= {"shape", "typestr"}:
        raise InvalidArgument(f"{protocol} is no dict with 'shape' and 'typestr'")
    if "data" not in interface and protocol != "__array_interface__":
        raise InvalidArgument(f"{protocol} has no 'data'")
    return interface


def _pair(data: Any, protocol: str) -> tuple[Any, Any]:
    if not isinstance(data, tuple) or len(data) != 2:
        raise InvalidArgument(f"{protocol} has {data!r} as data, not an address and a flag")
    return data


def _from_capsule(made: object, name: str) -> Foreign:
    if name != _MEMORY_CAPSULE:
        return _from_dlpack_capsule(made)
    shown = ffi.cast("l0_ze_memory*", _c.l0_capsule_pointer(id(made), name.encode()))
    if shown.version != 1:
        raise NotSupported(f"a capsule {name!r} of version {shown.version} is not known, only 1")
    found = _foreign(shown.address, (shown.size,), "|u1", None, bool(shown.flags & READ_ONLY), made, name)
    return found._replace(host_visible=not shown.flags & DEVICE_ONLY, context=shown.context)


def _capsule_name(obj: object) -> str | None:
    name = _c.l0_capsule_name(id(obj))
    return None if name == ffi.NULL else str(ffi.string(name).decode(errors="replace"))


def capsule(obj: Any) -> Any:
    """A PyCapsule for C, of anything with `__ze_memory__` or `__ze_context__`; names and pointers stay borrowed.

    `"l0py.ze_memory"` points to `{uint64_t version, context, address, size, flags}` as `__ze_memory__` has them,
    `"l0py.ze_context_handle"` is the `ze_context_handle_t` itself. The consumer keeps the capsule, which keeps the
    native object: memory that the host sees cannot be closed meanwhile, other handles live on behind their `close()`.
    """
    made: list[Any] = []
    if hasattr(obj, "__ze_memory__"):
        shown = ffi.new("l0_ze_memory*", (1, *_ze_memory(obj)))
        owner = _from_ze_memory(obj).owner
        done = _c.l0_capsule_of_memory(id(made), id(owner), shown)
    else:
        handle, owner = context_handle(obj), _pinned(obj)
        done = _c.l0_capsule_of_context(id(made), id(owner), handle)
    if not done:
        raise OutOfMemory(f"there is no host memory for a capsule of {obj!r}")
    return made[0]


def context_handle(obj: Any) -> int:
    """The `ze_context_handle_t` of anything with `__ze_context__`, or of a capsule of `capsule()`; it stays borrowed.

    `Context.from_handle(context_handle(obj), device, owner=obj)` makes it a context here. Raises TypeError.
    """
    if _capsule_name(obj) == _CONTEXT_CAPSULE:
        return lib.address(_c.l0_capsule_pointer(id(obj), _CONTEXT_CAPSULE.encode()))
    if not hasattr(obj, "__ze_context__"):
        raise TypeError(f"{type(obj).__name__} has no __ze_context__, and is no capsule {_CONTEXT_CAPSULE!r}")
    (handle,) = _numbers(obj.__ze_context__(), 2, "__ze_context__")
    if handle == 0:
        raise InvalidArgument("__ze_context__ answered no handle")
    return int(handle)


class Typed:
    """Memory with a format and a shape, for other libraries: `numpy.asarray(it)`, `torch.from_dlpack(it)`.

    Made by `Memory.typed()`. It and whatever was made of it keep the memory alive: `Memory.close()` raises `InUse`
    until they are gone. `address` and `size` are in bytes, `format` is as `Foreign` has it; C-contiguous.
    """

    __slots__ = ("__weakref__", "_exporter", "address", "format", "read_only", "shape", "size")

    def __init__(
        self,
        exporter: object,
        address: int,
        room: int,
        format: str,  # noqa: A002
        shape: Sequence[SupportsIndex] | None,
        read_only: bool,
    ) -> None:
        """Of `room` bytes that live as long as `exporter`."""
        self.format, item = formats.parse(format)
        extents = (room // item,) if shape is None else tuple(map(operator.index, shape))
        span = item * math.prod(max(extent, 1) for extent in extents)
        self.size = item * math.prod(extents)
        if min(extents, default=0) < 0 or self.size > room or span >= 1 << 63:
            raise InvalidArgument(f"shape {extents} of {item}-byte elements does not fit into {room} bytes")
        self._exporter = exporter
        self.address = address
        self.shape = extents
        self.read_only = read_only

    @property
    def __array_interface__(self) -> dict[str, Any]:
        # What NumPy has no type string for are plain bytes to it.
        text = f"|V{formats.NAMED[self.format]}" if self.format in formats.NAMED else self.format
        data = (self.address, self.read_only)
        return {"version": 3, "shape": self.shape, "typestr": text, "data": data, "strides": None}

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CPU

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        return dlpack.export(
            self._exporter,
            self.address,
            self.format,
            self.shape,
            self.size,
            self.read_only,
            stream,
            max_version,
            dl_device,
            copy,
        )

    def __repr__(self) -> str:
        return f"<l0py.Typed {self.format} {self.shape} at {self.address:#x}>"


_READERS = {
    "__array_interface__": _from_array_interface,
    "__sycl_usm_array_interface__": _from_sycl,
    "__dlpack__": _from_dlpack,
}
