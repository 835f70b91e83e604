"""A tensor that somebody wants over memory: whether it fits, and what it becomes once there is a way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import properties
from .errors import TensorMismatch
from .tensor import Bytes, Import, Tensor, byte_size

if TYPE_CHECKING:
    from collections.abc import Hashable

    import openvino as ov

    from .source import Source

__all__ = ["Wish"]


@dataclass(frozen=True)
class Wish:
    """A tensor to be made: from byte `offset` of a source on."""

    source: Source
    offset: int
    shape: tuple[int, ...]
    type: ov.Type
    tensor_type: str

    @property
    def size(self) -> int:
        """Bytes."""
        return byte_size(self.shape, self.type)

    @property
    def address(self) -> int | None:
        """Where its data lies in this process, None for what is known by its fd alone."""
        return None if self.source.address is None else self.source.address + self.offset

    def require_fit(self, route: str | None, routes: tuple[str, ...]) -> None:
        """Raises TensorMismatch for what no plugin could do."""
        source = self.source
        if route is not None and route not in routes:
            raise TensorMismatch(f"route {route!r} is none of {', '.join(routes)}")
        if self.tensor_type not in properties.TENSOR_TYPES:
            raise TensorMismatch(f"tensor_type {self.tensor_type!r} is none of {', '.join(properties.TENSOR_TYPES)}")
        if self.offset < 0:
            raise TensorMismatch(f"offset {self.offset} is negative: a tensor begins at byte 0 of its memory or later")
        if self.offset + self.size > source.size:
            raise TensorMismatch(
                f"{source.description} is too small for {self.size} bytes from byte {self.offset} "
                f"({self.type.get_type_name()} {list(self.shape)})"
            )
        if not source.writable and self.tensor_type != "INPUT":
            raise TensorMismatch(f"{source.description} is read-only: it can be an input only (tensor_type='INPUT')")

    def granted(self, route: str, memory: Import | Bytes, address: int | None) -> Tensor:
        """The tensor, with all that is known of where its bytes lie: one buffer may have several addresses, and a file.

        `address` is where the plugin sees it, None where that is no address of this process.
        """
        source = self.source
        extents: set[tuple[Hashable, int]] = set()
        extents.add((source.identity, self.offset) if self.address is None else ("address", self.address))
        if address is not None:
            extents.add(("address", address))
            if isinstance(memory, Import) and memory.file is not None:
                extents.add((memory.file, address - memory.address))
        return Tensor(route, memory, address, self.shape, self.type, writable=source.writable, extents=extents)
