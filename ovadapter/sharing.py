"""Memory of one driver or context in another, without a copy: GPU memory for the NPU, and NPU results for the GPU."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import l0py
from l0py import external
from l0py.dmabuf import Fd

from . import rules
from .context import NpuContext
from .errors import CopyRequired, ImportRefused
from .shared import Shared
from .source import handle_source, make_source, pages_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from .tensor import Import

__all__ = ["share"]

_HANDLE_KINDS = ("opaque_win32",) if sys.platform == "win32" else ("dma_buf", "opaque_fd")
"""What this system's drivers give out as handles and take, in the order in which it is tried."""


def share(memory: l0py.Memory, to: NpuContext | l0py.Context | l0py.Device) -> Shared:
    """Memory of any driver for another one: the same bytes, never a copy.

    `memory` is a GPU's for an `NpuContext`, say, or the NPU's for a GPU's l0py.Context; a l0py.Device stands for a
    context of it, the memory's own if that has the device. The ways are tried in this order, and the first that works
    is taken: peer access, a common context, an OS handle (dma-buf or opaque fd on Linux, NT handle on Windows; the
    memory must have been allocated `exportable` or imported by one), the pages of memory that the host sees.

    Raises `CopyRequired` with every reason when none does, and the way out; l0py.errors.Closed for closed memory,
    `OutOfMemory`, TypeError. Calls zeDeviceCanAccessPeer, zeMemGetAllocProperties, and what `Memory.export`,
    `Context.import_fd` and `Context.import_pointer` call.
    """
    if not isinstance(memory, l0py.Memory):
        raise TypeError(f"what is shared is a l0py.Memory, not {type(memory).__name__}: import it into a l0py.Context")
    memory.require_open()
    tried: list[tuple[str, str]] = []
    with ExitStack() as own:
        target = _target(memory, to, own)
        for way, take in _ways(memory, target):
            there = _try(take)
            if not isinstance(there, str):
                return Shared(memory, there, way, tried, target.npu, own.pop_all())
            tried.append((way, there))
    raise CopyRequired(
        f"{memory!r} cannot be used by {target.device.name} where it lies: "
        + "; ".join(f"{way}: {reason}" for way, reason in tried),
        _way_out(memory, target),
    )


@dataclass(frozen=True)
class _Target:
    """Who is to use the memory. `npu` is set when it is OpenVINO, which must import everything itself."""

    context: l0py.Context
    device: l0py.Device
    npu: NpuContext | None = None


def _target(memory: l0py.Memory, to: object, own: ExitStack) -> _Target:
    """What `to` stands for; `own` closes a context that is made for it."""
    if isinstance(to, NpuContext):
        return _Target(to.context, to.device, to)
    if isinstance(to, l0py.Context):
        to.require_open()
        if to.device is None:
            raise TypeError(f"{to!r} has no device that could use memory")
        return _Target(to, to.device)
    if isinstance(to, l0py.Device):
        if to.driver == memory.context.driver:
            return _Target(l0py.Context.from_handle(memory.context.handle, to, owner=memory.keep()), to)
        return _Target(own.enter_context(l0py.Context(to)), to)
    raise TypeError(f"memory is shared with an NpuContext, a l0py.Context or a l0py.Device, not {type(to).__name__}")


def _try(take: Callable[[], l0py.Memory]) -> l0py.Memory | str:
    """The memory, or why this way does not do."""
    try:
        return take()
    except CopyRequired as error:
        return error.rule
    except (l0py.InvalidArgument, l0py.NotSupported, ImportRefused) as error:
        return str(error)


def _ways(memory: l0py.Memory, target: _Target) -> list[tuple[str, Callable[[], l0py.Memory]]]:
    handles = [(kind, lambda kind=kind: _by_handle(memory, target, kind)) for kind in _HANDLE_KINDS]
    return [
        ("peer access", lambda: _by_peer_access(memory, target)),
        ("same context", lambda: _in_same_context(memory, target)),
        *handles,
        ("host pages", lambda: _by_pages(memory, target)),
    ]


def _by_peer_access(memory: l0py.Memory, target: _Target) -> l0py.Memory:
    owner = memory.device
    if memory.context.driver != target.device.driver:
        raise l0py.NotSupported("the devices belong to two drivers")
    if owner is None or owner == target.device:
        raise l0py.NotSupported("it is memory of no other device")
    if not target.device.can_access_peer(owner):
        raise l0py.NotSupported(f"{target.device.name} has no access to the memory of {owner.name}")
    _require_known(memory, target)
    return _borrowed(memory, target)


def _in_same_context(memory: l0py.Memory, target: _Target) -> l0py.Memory:
    _require_known(memory, target)
    if target.npu is not None:
        imported = target.npu.router.imported(memory.address, memory.size)
        if imported is None:
            raise CopyRequired(rules.OWN_CONTEXT, "")
        return _imported(memory, target, imported)
    if memory.device is not None and memory.device != target.device:
        raise l0py.NotSupported(f"it is memory of another device, {memory.device.name}")
    return _borrowed(memory, target)


def _require_known(memory: l0py.Memory, target: _Target) -> None:
    """Two contexts of a driver may know of each other's memory: the driver is asked."""
    if memory.context.driver != target.device.driver:
        raise l0py.NotSupported("the memory is another driver's")
    if memory.context.handle == target.context.handle:
        return
    found = target.context.alloc_properties(memory.address)
    if found.type == "unknown" or found.id != memory.id:
        raise l0py.NotSupported("the memory belongs to another context of the driver")


def _by_handle(memory: l0py.Memory, target: _Target, kind: str) -> l0py.Memory:
    if memory.exportable != kind:
        way = f"it was made exportable as {memory.exportable!r}" if memory.exportable else "it was not made exportable"
        raise l0py.NotSupported(way)
    if kind not in target.device.external_memory.imports:
        raise l0py.NotSupported(f"{target.device.name} does not import that kind")
    with memory.export(kind) as handle:
        if isinstance(handle, Fd) and handle.size < memory.size:
            raise l0py.NotSupported(f"behind it are {handle.size} of its {memory.size} bytes: the file was truncated")
        if target.npu is not None:
            source = handle_source(handle, memory.size, description=repr(memory))
            return _imported(memory, target, target.npu.router.keep(source, "SHARED_BUF"))
        return _import_handle(memory, target, handle, kind)


def _import_handle(memory: l0py.Memory, target: _Target, handle: Any, kind: str) -> l0py.Memory:
    """As host memory, which both sides see, where the driver imports such; else as the device's."""
    on_device = memory.kind == "device" and target.device.type != "npu"
    if on_device or "host" not in external.policy(target.context, target.device).imports:
        where: dict[str, Any] = {"kind": "device", "device": target.device}
    else:
        where = {"kind": "host"}
    if kind == "opaque_win32":
        return target.context.import_win32(handle, memory.size, type=kind, **where)
    return target.context.import_fd(handle, memory.size, type=kind, read_only=memory.read_only, **where)


def _by_pages(memory: l0py.Memory, target: _Target) -> l0py.Memory:
    pages = pages_of(memory)
    if target.npu is not None:
        source = replace(make_source(memory), hold=memory.keep())
        return _imported(memory, target, target.npu.router.keep(source, "CPU_VA"))
    whole = target.context.import_pointer(*pages, owner=memory.keep(), read_only=memory.read_only)
    shown = l0py.Memory.from_handle(whole.address, memory.size, context=target.context, owner=whole)
    shown.read_only = memory.read_only
    return shown


def _borrowed(memory: l0py.Memory, target: _Target) -> l0py.Memory:
    """The memory where it is, as the target's: freed with the last of both."""
    shown = l0py.Memory.from_handle(
        memory.address,
        memory.size,
        context=target.context,
        kind=memory.kind,
        device=memory.device,
        exportable=memory.exportable if memory.origin == "allocated" else "",
        owner=memory.keep(),
    )
    shown.read_only = memory.read_only
    return shown


def _imported(memory: l0py.Memory, target: _Target, imported: Import) -> l0py.Memory:
    """What OpenVINO imported, as memory of its context."""
    # Its pages stay where they are, and may be part of what was imported; an fd's are mapped elsewhere.
    inside = imported.contains(memory.address, memory.size)
    address = memory.address if inside else imported.address
    shown = l0py.Memory.from_handle(address, memory.size, context=target.context, owner=imported)
    shown.read_only = memory.read_only
    return shown


def _way_out(memory: l0py.Memory, target: _Target) -> str:
    owner = memory.context.device
    exports = owner.external_memory.exports if owner is not None else frozenset()
    both = [kind for kind in _HANDLE_KINDS if kind in exports & target.device.external_memory.imports]
    if both and memory.exportable not in both:
        return f"Allocate it with exportable={both[0]!r}" + (
            ", as host or device memory: shared memory has no handle" if memory.kind == "shared" else ""
        )
    if memory.kind == "device":
        return "Allocate it as host memory"
    return f"Allocate it in a context of {target.device.name}, and share that the other way round"
