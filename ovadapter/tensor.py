"""Memory in, a tensor that the NPU plugin uses in place out; or an exception."""

from __future__ import annotations

import math
import operator
import threading
from typing import TYPE_CHECKING, Any

from l0py.errors import Closed, InUse, NotSupported

from . import properties
from .errors import ImportRefused, TensorMismatch

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable

    import numpy as np
    import openvino as ov

__all__ = ["Bytes", "Import", "Tensor", "byte_size", "element_type", "make_import", "static_shape"]


_counting = threading.RLock()  # a Binding that the garbage collector closes may count within a count


class Import:
    """Memory that OpenVINO imported into its own Level Zero context. It lasts as long as anything refers to it.

    `address` is where the plugin sees it, and this process too (0: the GPU plugin does not tell). `mem_type` is how it
    was imported: `"SHARED_BUF"`, `"CPU_VA"`, ... `file` stands for what is behind the fd that it was imported by: equal
    for all fds of one buffer.
    """

    def __init__(self, remote: ov.RemoteTensor, mem_type: str, size: int, hold: object, address: int) -> None:
        self.remote = remote
        self.mem_type = mem_type
        self.size = size
        self.file: Hashable = None
        self.address = address
        self._hold = hold

    def contains(self, address: int, size: int) -> bool:
        """Whether all these bytes lie in it."""
        return self.address <= address and address + size <= self.address + self.size

    def overlaps(self, address: int, size: int) -> bool:
        """Whether any of these bytes lies in it."""
        return address < self.address + self.size and self.address < address + size


class Bytes:
    """A range of memory as NumPy's array interface: every array over it keeps `hold` alive."""

    def __init__(self, address: int, size: int, hold: object) -> None:
        self.hold = hold
        # Never read-only: ov.Tensor refuses such arrays, for inputs too. Tensor.numpy() takes the right away again.
        self.__array_interface__ = {"data": (address, False), "shape": (size,), "typestr": "|u1", "version": 3}


class Tensor:
    """A tensor over memory. Made by a context's `remote_tensor`; give it to the same context's `bind`.

    `route` is how the plugin gets at the memory: `"SHARED_BUF"` and `"CPU_VA"` are remote tensors (`remote`),
    `"keeper"` is a plain tensor (`plain`) inside a buffer that was imported as a whole, `"view"` is a plain tensor that
    the CPU plugin reads where it lies, `"copy"` is one that the NPU plugin copies. Exactly one of `remote` and `plain`
    is set. `address` and `size` (bytes) are those of the data (None: this process does not see it), `mem_type` is how
    the memory was imported (`"SHARED_BUF"`, `"CPU_VA"`, None on the routes `"view"` and `"copy"`). Whoever sets it in a
    request without `bind` must keep it alive as long as the request uses it.
    """

    def __init__(
        self,
        route: str,
        memory: Import | Bytes,
        address: int | None,
        shape: tuple[int, ...],
        type_: ov.Type,
        *,
        writable: bool,
        extents: Collection[tuple[Hashable, int]],
    ) -> None:
        self.route = route
        self.address = address
        self.shape = shape
        self.element_type = type_
        self.size = byte_size(shape, type_)
        self.writable = writable
        self.extents = extents
        self.mem_type = memory.mem_type if isinstance(memory, Import) else None
        self._remote = memory.remote if isinstance(memory, Import) and route != "keeper" else None
        # Without an address it only stands for the memory: numpy() refuses.
        self._bytes: Bytes | None = Bytes(address or 0, self.size, memory)
        self._plain = None if self._remote is not None else plain_tensor(self._bytes, shape, type_)
        self._bindings = 0

    @property
    def remote(self) -> ov.RemoteTensor | None:
        """The remote tensor, for `InferRequest.set_tensor(name, ...)`; None on the routes that have a plain one."""
        self.require_open()
        return self._remote

    @property
    def plain(self) -> ov.Tensor | None:
        """The plain tensor; None on the routes that have a remote one."""
        self.require_open()
        return self._plain

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._bytes is None

    def numpy(self) -> np.ndarray[Any, Any]:
        """The data as an array, without a copy: of its shape and type, or of bytes where NumPy has no such type.

        The array keeps the memory alive. Read-only memory gives a read-only array. Raises NotSupported where `address`
        is None.
        """
        import numpy as np

        self.require_open()
        if self.address is None:
            raise NotSupported(f"{self!r} has no address in this process: map the fd that it was made from")
        array = np.asarray(self._bytes)
        dtype = _numpy_type(self.element_type)
        if dtype is not None:
            array = array.view(dtype).reshape(self.shape)
        if not self.writable:
            array.flags.writeable = False
        return array

    def overlaps(self, other: Tensor) -> bool:
        """Whether both are known to share a byte. Two ways into the same memory are not always known as such."""
        return any(
            space == other_space and start < other_start + other.size and other_start < start + self.size
            for space, start in self.extents
            for other_space, other_start in other.extents
        )

    def require_open(self) -> None:
        """Raises l0py.errors.Closed after `close()`."""
        if self.closed:
            raise Closed(f"{self!r} is closed")

    def acquire(self) -> None:
        """Counts one more binding: while there are any, it cannot be closed (for `Binding` alone)."""
        with _counting:
            self.require_open()
            self._bindings += 1

    def release(self) -> None:
        """The opposite (for `Binding` alone)."""
        with _counting:
            self._bindings -= 1

    def close(self) -> None:
        """Lets go of the import; arrays over it keep it alive. Raises BufferError while it is bound. Runs once."""
        with _counting:
            if self._bindings:
                raise InUse(f"{self!r} is bound to a request: close the binding first")
            dropped = self._remote, self._plain, self._bytes
            self._remote = self._plain = self._bytes = None
        del dropped  # outside the lock: the driver frees memory

    def __enter__(self) -> Tensor:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __reduce__(self) -> str:
        raise TypeError("a Tensor cannot be copied or pickled: a copy would not know who is bound to the first")

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape)) or "scalar"
        state = " (closed)" if self.closed else ""
        what = f"{self.element_type.get_type_name()} {shape}"
        where = "" if self.address is None else f" at {self.address:#x}"
        return f"<ovadapter.Tensor {what}{where} by {self.route}{state}>"


#: Types that NumPy lacks, by the names that other libraries give them.
_NAMED = {
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2",
    "float8_e8m0fnu": "f8e8m0",
}


def element_type(type_: Any) -> ov.Type:
    """An OpenVINO type from itself, from its name ("f32", "bfloat16") or from anything that NumPy takes for a dtype.

    Raises TensorMismatch for what is no type, and for strings, whose bytes are not in the tensor.
    """
    import numpy as np
    import openvino as ov

    found = getattr(ov.Type, _NAMED.get(type_, type_), None) if isinstance(type_, str) else type_
    if not isinstance(found, ov.Type):
        try:
            found = ov.Type(type_)
        except (TypeError, RuntimeError) as error:
            raise TensorMismatch(f"{type_!r} is no element type of OpenVINO") from error
        if type_ is None or not np.dtype(type_).isnative:  # what NumPy takes for float64, and swapped bytes
            raise TensorMismatch(f"{type_!r} is no element type of OpenVINO")
    if found == ov.Type.string or found.is_dynamic():
        raise TensorMismatch(f"a tensor of element type {found.get_type_name()} has no bytes that could be shared")
    return found


def static_shape(shape: Iterable[int]) -> tuple[int, ...]:
    """A shape as a tuple of positive ints; raises TensorMismatch for anything else, dynamic shapes above all."""
    try:
        sizes = tuple(operator.index(size) for size in shape)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TensorMismatch(f"{shape} is no static shape: each dimension must be a number") from error
    if any(size < 1 for size in sizes):
        raise TensorMismatch(f"shape {sizes} has a dimension below 1: there would be nothing to share")
    return sizes


def byte_size(shape: tuple[int, ...], type_: ov.Type) -> int:
    """Bytes of a tensor. Types of less than a byte are packed and rounded up, those of 3 and 6 bits in groups."""
    count = math.prod(shape)
    bits = int(type_.bitwidth)
    group = {3: 8, 6: 4}.get(bits)
    if group:
        return -(-count // group) * 3
    return -(-count * bits // 8)


def _numpy_type(type_: ov.Type) -> np.dtype[Any] | None:
    """NumPy's type for an OpenVINO type of whole bytes; None for those that NumPy would misread."""
    if type_.bitwidth < 8 or type_.get_type_name() in {"bf16", "nf4", "f8e4m3", "f8e5m2", "f8e8m0", "f4e2m1"}:
        return None
    import numpy as np

    dtype: np.dtype[Any] = np.dtype(type_.to_dtype())
    return dtype


def plain_tensor(data: Bytes, shape: tuple[int, ...], type_: ov.Type) -> ov.Tensor:
    """An ov.Tensor over memory; it keeps the memory alive, but a request in which it is set does not keep it."""
    import numpy as np
    import openvino as ov

    return ov.Tensor(np.asarray(data), ov.Shape(list(shape)), type_)


def make_import(
    context: ov.RemoteContext,
    shape: tuple[int, ...],
    type_: ov.Type,
    request: dict[str, str],
    *,
    hold: object,
    wanted_address: int | None = None,
) -> Import:
    """Asks OpenVINO for a remote tensor over foreign memory; raises ImportRefused with its reason.

    With `wanted_address` the tensor must lie exactly there: over part of a range that is already imported, OpenVINO
    makes a tensor that lies at the range's start and would silently read and write the wrong bytes.
    """
    import openvino as ov

    try:
        remote = context.create_tensor(type_, ov.Shape(list(shape)), request)
        imported = Import(remote, request["MEM_TYPE"], byte_size(shape, type_), hold, properties.mem_handle(remote))
    except RuntimeError as error:
        raise ImportRefused(f"OpenVINO did not import the memory by {request['MEM_TYPE']}: {reason(error)}") from error
    if wanted_address is not None and imported.address != wanted_address:
        raise ImportRefused(
            f"OpenVINO bound the tensor at {imported.address:#x}, not at {wanted_address:#x}: somebody else imported "
            "memory that overlaps it. Use that import, or close it first"
        )
    return imported


def reason(error: Exception) -> str:
    """The last words of an OpenVINO error: what comes before is where in its source they were said."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(("Exception from ", "Check '"))]
    return (said or lines or ["no reason given"])[-1]
