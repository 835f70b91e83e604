"""Which way memory takes into the plugin: remote tensor by fd, by address, or a keeper; or `CopyRequired`."""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import l0py
from l0py.dmabuf import Fd

from . import properties, rules
from .errors import CopyRequired, ImportRefused
from .source import PAGE, SIZE_UNKNOWN, Source
from .tensor import Bytes, Import, Tensor, byte_size, element_type, make_import
from .wish import Wish

if TYPE_CHECKING:
    from collections.abc import Hashable

    import openvino as ov

    from .source import OsHandle

__all__ = ["ROUTES", "Features", "Router"]

ROUTES = ("SHARED_BUF", "CPU_VA", "keeper")

_MUTABLE_WAY_OUT = "Update the driver; the loader must be 1.16 or newer"


@dataclass(frozen=True)
class Features:
    """What the driver, the loader and the OpenVINO in use can do without a copy.

    `touching_pages`: whether OpenVINO imports pages that end where other imported pages begin.
    """

    mutable_lists: bool
    import_fd: bool
    import_address: bool
    cpu_va: bool
    touching_pages: bool


class Router:
    """Makes the tensors of one OpenVINO context and knows what it has imported. Thread safe."""

    def __init__(self, context: ov.RemoteContext, features: Features, *, software: bool) -> None:
        self.features = features
        self.software = software
        self._context = context
        self._l0_context = properties.l0_context(context)
        self._lock = threading.RLock()
        self._imports: weakref.WeakSet[Import] = weakref.WeakSet()
        self._keepers: weakref.WeakValueDictionary[Hashable, Import] = weakref.WeakValueDictionary()

    def memory_id(self, address: int) -> int:
        """The number of the memory in OpenVINO's Level Zero context at an address, 0 for foreign memory.

        Calls zeMemGetAllocProperties.
        """
        ffi, lib = l0py.lib.ffi, l0py.lib
        found: Any = ffi.new(
            "ze_memory_allocation_properties_t*", {"stype": lib.ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES}
        )
        result = lib.zeMemGetAllocProperties(self._l0_context, address, found, ffi.NULL)
        return int(found.id) if result == 0 and found.type != lib.ZE_MEMORY_TYPE_UNKNOWN else 0

    def imported(self, address: int, size: int) -> Import | None:
        """The import of this process's making that holds all these bytes."""
        with self._lock:
            return next((one for one in self._imports if one.contains(address, size)), None)

    def keep(self, source: Source, route: str) -> Import:
        """The import that holds all of a source's memory, there already or made now by `"SHARED_BUF"` or `"CPU_VA"`.

        Raises CopyRequired or ImportRefused.
        """
        if not self.features.mutable_lists:
            raise CopyRequired(rules.MUTABLE_MISSING, _MUTABLE_WAY_OUT)
        kind = "BINDED" if source.writable else "INPUT"
        wish = Wish(source, 0, (source.size,), element_type("u8"), kind)
        with self._lock:
            existing = self._existing(wish)
            if existing is not None:
                return existing
            if route == "CPU_VA":
                return self._keeper(wish, None)
            if not self.features.import_fd:
                raise CopyRequired(rules.IMPORT_MISSING, "Update the driver")
            with source.duplicate() or nullcontext() as fd:
                return self._keeper(wish, fd)

    def tensor(
        self,
        source: Source,
        offset: int,
        shape: tuple[int, ...],
        type_: ov.Type,
        *,
        route: str | None,
        tensor_type: str,
        allow_copy: bool,
    ) -> Tensor:
        """The tensor by the route asked for, or by the best one that works."""
        wish = Wish(source, offset, shape, type_, tensor_type)
        try:
            wish.require_fit(route, ROUTES)
            with self._lock:
                try:
                    return self._in_place(wish, route)
                except (CopyRequired, ImportRefused):
                    if not allow_copy or source.host_address is None:
                        raise
                    address = source.host_address + offset
                    return wish.granted("copy", Bytes(address, wish.size, source.hold), address)
        except BaseException:
            source.release()
            raise

    def _in_place(self, wish: Wish, route: str | None) -> Tensor:
        if not self.features.mutable_lists:
            raise CopyRequired(rules.MUTABLE_MISSING, _MUTABLE_WAY_OUT)
        if route in (None, "keeper"):
            existing = self._existing(wish)
            if existing is not None:
                return _inside(existing, wish)
        if route == "CPU_VA":
            return self._by_address(wish)
        with (wish.source.duplicate() if self.features.import_fd else None) or nullcontext() as fd:
            if route == "SHARED_BUF" or (route is None and fd is not None and wish.offset == 0):
                return self._by_fd(wish, fd)
            if route is None and fd is None and wish.source.pages == (wish.address, wish.size):
                return self._by_address(wish)
            return _inside(self._keeper(wish, fd), wish)

    def _existing(self, wish: Wish) -> Import | None:
        if wish.address is not None:
            found = self.imported(wish.address, wish.size)
            if found is not None:
                return found
        keeper = self._keepers.get(wish.source.identity)
        return keeper if keeper is not None and keeper.size >= wish.offset + wish.size else None

    def _by_fd(self, wish: Wish, fd: OsHandle | None) -> Tensor:
        if fd is None:
            raise CopyRequired(
                f"{wish.source.description} has no fd by which OpenVINO could import it",
                "Allocate it with exportable=True, or leave the route open",
            )
        if wish.offset:
            raise CopyRequired(
                f"OpenVINO imports an fd from its first byte, not from byte {wish.offset}",
                "Use route='keeper', or leave the route open",
            )
        imported = self._import_fd(wish, fd, wish.shape, wish.type, wish.tensor_type)
        return wish.granted("SHARED_BUF", imported, imported.address)

    def _by_address(self, wish: Wish) -> Tensor:
        _require_host_visible(wish.source)
        if wish.address is None or wish.address % PAGE or wish.size % PAGE:
            raise CopyRequired(
                f"{rules.OUTSIDE}: {wish.source.description}, {wish.size} bytes from byte {wish.offset}",
                "Use route='keeper' on l0py memory, or an array that starts and ends on a page (l0py's alloc_host)",
            )
        imported = self._import_pages(wish, wish.address, wish.shape, wish.type)
        return wish.granted("CPU_VA", imported, wish.address)

    def _keeper(self, wish: Wish, fd: OsHandle | None) -> Import:
        """The whole buffer as one tensor of bytes."""
        source = wish.source
        if source.size == SIZE_UNKNOWN:
            raise CopyRequired(
                f"{source.description} does not tell its size, so that it cannot be imported as a whole",
                "Let the tensor begin at its first byte",
            )
        u8 = element_type("u8")
        if fd is not None:
            keeper = self._import_fd(wish, fd, (source.size,), u8, "BINDED")
        elif source.pages is not None:
            keeper = self._import_pages(wish, source.pages[0], (source.pages[1],), u8)
        elif source.address is None:
            raise CopyRequired(rules.IMPORT_MISSING, "Map it and give its pages as an array")
        else:
            _require_host_visible(source)
            odd = [name for name, value in (("address", source.address), ("size", source.size)) if value % PAGE]
            why = f"its {' and '.join(odd)} is no multiple of {PAGE}" if odd else "it is not always there"
            raise CopyRequired(
                f"{rules.OUTSIDE}: {source.description}, {why}",
                "Take l0py memory (alloc_host) or an array that starts and ends on a page; or import all pages that it "
                "touches (Context.import_pointer) and take a tensor out of them (npu.remote_tensor with offset=); or "
                "say allow_copy=True",
            )
        self._keepers[source.identity] = keeper
        return keeper

    def _import_fd(self, wish: Wish, fd: OsHandle, shape: tuple[int, ...], type_: ov.Type, tensor_type: str) -> Import:
        if not isinstance(fd, Fd):
            return self._import(wish, shape, type_, properties.shared_buf(fd.handle, tensor_type))
        try:
            imported = self._import(wish, shape, type_, properties.shared_buf(fd.fileno(), tensor_type))
        except ImportRefused as error:
            try:
                what = f" ({Path(f'/proc/self/fd/{fd.fileno()}').readlink()})"
            except OSError:
                what = ""
            if not _may_be_written(fd):
                raise ImportRefused(
                    f"{wish.source.description}{what} is open for reading alone: open it for writing, too. {error}"
                ) from error
            raise ImportRefused(
                f"{error}. What is behind {wish.source.description}{what} must be a dma-buf, or for the software "
                "driver a memfd, that may be written"
            ) from error
        imported.file = ("file", *fd.identity)
        return imported

    def _import_pages(self, wish: Wish, address: int, shape: tuple[int, ...], type_: ov.Type) -> Import:
        size = byte_size(shape, type_)
        if not self.features.cpu_va:
            raise CopyRequired(rules.CPU_VA_MISSING, "Allocate the memory with exportable=True")
        if not self.features.import_address:
            raise CopyRequired(rules.IMPORT_MISSING, "Allocate the memory with exportable=True")
        if any(one.overlaps(address, size) for one in self._imports):
            raise ImportRefused(
                f"{size} bytes at {address:#x} overlap memory that is already imported: OpenVINO would put the tensor "
                "at the start of that. Import both as one and take tensors out of that (route='keeper'), or close the "
                "tensors over it"
            )
        if wish.source.context == self._l0_context or self.memory_id(address):
            raise CopyRequired(
                f"{rules.OWN_CONTEXT}: {wish.source.description}",
                "Allocate it in a l0py.Context of your own or with exportable=True; if OpenVINO made or imported it, "
                "use the tensor that it gave you",
            )
        properties_ = properties.cpu_va(address, wish.tensor_type)
        try:
            return self._import(wish, shape, type_, properties_, wanted_address=address)
        except ImportRefused as error:
            hint = ""
            if not self.features.touching_pages:
                hint = ". OpenVINO before 2026.3 refuses pages that end where other imported pages begin"
            if wish.source.context is not None:
                hint += ". Drivers may import their own memory by fd alone: allocate it with exportable=True"
            raise ImportRefused(f"{error}{hint}") from error

    def _import(
        self,
        wish: Wish,
        shape: tuple[int, ...],
        type_: ov.Type,
        request: dict[str, str],
        wanted_address: int | None = None,
    ) -> Import:
        # It holds this router, which must know of it as long as it lives.
        hold = (self, wish.source.hold)
        imported = make_import(self._context, shape, type_, request, hold=hold, wanted_address=wanted_address)
        self._imports.add(imported)
        return imported


_routers: weakref.WeakValueDictionary[int, Router] = weakref.WeakValueDictionary()
_routers_lock = threading.Lock()


def router_of(context: ov.RemoteContext, features: Features, *, software: bool) -> Router:
    """The router of a Level Zero context: one for all the cores of a process, which share the context."""
    key = properties.l0_context(context)
    with _routers_lock:
        router = _routers.get(key)
        if router is None:
            router = _routers[key] = Router(context, features, software=software)
        return router


def any_router() -> Router | None:
    """The process's router, if there is one: OpenVINO has one NPU context."""
    with _routers_lock:
        return next(iter(_routers.values()), None)


def _may_be_written(fd: Fd) -> bool:
    import fcntl  # here, because Windows has none

    return fcntl.fcntl(fd.fileno(), fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY


def _require_host_visible(source: Source) -> None:
    if source.host_visible is False:
        raise CopyRequired(
            f"{rules.DEVICE_MEMORY}: {source.description}", "Allocate it with exportable=True, and leave the route open"
        )


def _inside(keeper: Import, wish: Wish) -> Tensor:
    """A plain tensor inside imported memory, at its own place."""
    source = wish.source
    if keeper.mem_type == "CPU_VA" and wish.address is not None:
        address = wish.address
    elif wish.address is not None and keeper.contains(wish.address, wish.size):
        address = wish.address  # an array over memory that the plugin mapped
    else:
        address = keeper.address + wish.offset
    assert keeper.contains(address, wish.size), f"{source.description} is not in its import"
    return wish.granted("keeper", keeper, address)
