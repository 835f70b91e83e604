"""Memory in and out by OS handles: what drivers do differently, settled in one place.

Drivers differ in who closes a descriptor, and some answer SUCCESS to an import and hand out fresh memory. `policy` says
how a driver does it: by what it is, and by watching it once where only that tells. Drivers only ever get duplicates.
"""

from __future__ import annotations

import errno
import operator
import os
import stat
import sys
import threading
from typing import TYPE_CHECKING, NamedTuple, SupportsIndex

from . import lib
from ._ffi import ffi
from ._ffi import lib as _c
from .device import EXTERNAL_KINDS
from .dmabuf import Fd, buffer_size
from .errors import BadDescriptor, Error, InvalidArgument, NotSupported, check
from .handles import CData, Handle, collected, discard

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol, TypeAlias, TypeVar

    from .context import Context
    from .device import Device, ExternalMemory
    from .driver import Driver
    from .image import Image
    from .ntwin import NtHandle
    from .physical_memory import PhysicalMemory

    if sys.platform == "win32":
        Exported: TypeAlias = NtHandle
    else:
        Exported: TypeAlias = Fd
    Owned = TypeVar("Owned", Fd, NtHandle)

    class HasFileno(Protocol):
        """Anything with a descriptor."""

        def fileno(self) -> int: ...

    class HasHandle(Protocol):
        """Anything with a Windows handle, a `ntwin.NtHandle` for one."""

        @property
        def handle(self) -> int: ...


__all__: list[str] = []

#: Kinds that are descriptors; the others are Windows handles. `exportable=True` means the first that is offered.
FD_KINDS = ("dma_buf", "opaque_fd")
WIN32_KINDS = tuple(kind for kind in EXTERNAL_KINDS if kind not in FD_KINDS)

_PROBED_BYTES = 4096


class Policy(NamedTuple):
    """How a driver treats OS handles; None where nobody could tell, so that it is watched each time."""

    #: The kinds of memory (`"host"`, `"device"`, `"shared"`) that it really imports, and those that it exports.
    imports: frozenset[str]
    exports: frozenset[str]
    #: Whether it closes a descriptor that it imported. One that it failed to import stays the caller's everywhere.
    closes_imported: bool | None
    #: Whether each export makes a new descriptor, which is the caller's; else it keeps one and always shows that.
    exports_new: bool | None
    #: The kinds of OS handles that the device offers.
    offered: ExternalMemory


#: What was observed, by driver and release: who closes an imported descriptor, and whose an exported one is.
_observed: dict[tuple[int, tuple[int, int], int], tuple[bool | None, bool | None]] = {}


def policy(context: Context, device: Device) -> Policy:
    """How the device's driver treats OS handles, found out once for a context.

    NPU drivers honour every import, and never keep or close a descriptor. Other drivers ignore imports of shared
    memory, and before API 1.5 of host memory, with SUCCESS; what they do to descriptors changed between releases, and
    is observed. Calls zeDriverGetApiVersion, zeDriverGetProperties and zeDeviceGetExternalMemoryProperties.
    """
    known = context._policies.get(device.handle)
    if known is None:
        known = context._policies[device.handle] = _decide(context, device)
    return known


def _decide(context: Context, device: Device) -> Policy:
    driver, offered = device.driver, device.external_memory
    host = {"host"} if driver.api_version >= (1, 5) else set()
    if device.type == "npu":
        return Policy(frozenset({"device", "shared"} | host), frozenset({"device"} | host), False, True, offered)
    release = (driver.handle, driver.api_version, driver.properties.version)
    try:
        observed = _observed.get(release) or _observe(context, device, offered)
    except (Error, OSError):
        observed = None, None
    if None not in observed:
        _observed[release] = observed
    return Policy(frozenset({"device"} | host), frozenset({"device"} | host), *observed, offered)


def _observe(context: Handle, device: Device, offered: ExternalMemory) -> tuple[bool | None, bool | None]:
    """What happens to the descriptors of a page of device memory that is exported, imported again, and freed.

    Nobody else has a descriptor of that page: what is open under a number afterwards tells whose it was.
    """
    kind = next((kind for kind in FD_KINDS if kind in offered.exports & offered.imports), None)
    if kind is None:
        return None, None
    closes_imported, exported = None, None
    memory = _allocate_on_device(context, device, export_desc(kind))
    try:
        with context.held() as handle:
            query = memory_query(handle, memory.handle)
            number = query_fd(kind, "zeMemGetAllocProperties", query, device.driver, "a page")
        if buffer_size(number) >= _PROBED_BYTES:  # a driver without hardware may tell any number
            exported = number, os.fstat(number)
            closes_imported = _closes_imported(context, device, kind, number)
    finally:
        discard(memory)
        exports_new = exported and _is_open_as(*exported)
        if exports_new:
            os.close(number)
    return closes_imported, exports_new


def _closes_imported(context: Handle, device: Device, kind: str, page: int) -> bool:
    import_desc, file = import_fd_desc(kind), os.fstat(page)
    lent = import_desc.fd = Fd.duplicate(page).detach()
    try:
        discard(_allocate_on_device(context, device, import_desc))
    finally:
        still_open = _is_open_as(lent, file)
        if still_open:
            os.close(lent)
    return not still_open


def _allocate_on_device(context: Handle, device: Device, chained: CData) -> CData:
    desc = ffi.new(
        "ze_device_mem_alloc_desc_t*", {"stype": lib.ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, "pNext": chained}
    )
    box = collected(_c.l0_box_new(_c.L0_MEMORY, context._box))
    _c.l0_alloc_device(box, context._box, desc, _PROBED_BYTES, 0, device.handle)
    check(box.result, "zeMemAllocDevice", driver=device.driver.handle)
    return box


def require_import(how: Policy, device: Device, external_kind: str, kind: str) -> None:
    """Refuses what the driver would answer with SUCCESS and fresh memory, or not at all. Raises `NotSupported`."""
    require_offered(device, external_kind, how.offered.imports, "import memory from")
    if kind not in how.imports:
        works = " or ".join(sorted(how.imports))
        raise NotSupported(f"{device.name}'s driver would ignore an import as {kind} memory: {works} works")


def require_export(how: Policy, device: Device, external_kind: str, kind: str) -> None:
    """Refuses what the driver would allocate and then not export. Raises `NotSupported`."""
    require_offered(device, external_kind, how.offered.exports, "export memory as")
    if kind not in how.exports:
        works = " or ".join(sorted(how.exports))
        raise NotSupported(f"{device.name}'s driver exports no {kind} memory: {works} works")


def require_offered(device: Device, external_kind: str, offered: frozenset[str], what: str) -> None:
    """Raises `NotSupported` for a kind of OS handle that the device does not offer."""
    if external_kind not in offered:
        kinds = ", ".join(sorted(offered)) or "none"
        raise NotSupported(f"{device.name} cannot {what} {external_kind}: it offers {kinds}")


def export_kind(exportable: bool | str, offered: frozenset[str]) -> str:
    """The kind of OS handle that `exportable=` stands for. Raises `InvalidArgument` for what is none."""
    if not isinstance(exportable, str):
        return next((kind for kind in (*FD_KINDS, *WIN32_KINDS) if kind in offered), "dma_buf")
    if exportable not in EXTERNAL_KINDS:
        raise InvalidArgument(f"nothing can be exported as {exportable!r}: there are {', '.join(EXTERNAL_KINDS)}")
    return exportable


def descriptor(fd: HasFileno | SupportsIndex) -> int:
    """The number of an open descriptor that may be a buffer. Raises `BadDescriptor`."""
    try:
        number = fd.fileno() if hasattr(fd, "fileno") else operator.index(fd)
    except ValueError as error:
        raise BadDescriptor(f"{fd!r} cannot be imported: {error}", errno=errno.EBADF) from None
    try:
        mode = os.fstat(number).st_mode
    except (OSError, OverflowError):
        raise BadDescriptor(f"file descriptor {number} is not open", errno=errno.EBADF) from None
    what = next((name for test, name in _NO_BUFFERS if test(mode)), None)
    if what:
        raise BadDescriptor(f"file descriptor {number} is {what}, not a buffer", errno=errno.EINVAL)
    return number


_NO_BUFFERS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


def import_size(fd: int, size: SupportsIndex | None) -> int:
    """How many bytes to import: all that the buffer has, unless fewer are asked for. Raises `InvalidArgument`."""
    there = buffer_size(fd)
    if there == 0:
        raise BadDescriptor(f"file descriptor {fd} has no bytes to import", errno=errno.EINVAL)
    if size is None:
        return there
    wanted = operator.index(size)
    if wanted <= 0:
        raise InvalidArgument(f"cannot import {wanted} bytes: size must be positive")
    if wanted > there:
        raise InvalidArgument(f"file descriptor {fd} has {there} bytes, fewer than the {wanted} asked for")
    return wanted


_lending = threading.Lock()


def lend(fd: int, closes_imported: bool | None, call: Callable[[int], CData]) -> CData:
    """The box that `call` makes from a duplicate of `fd`; the duplicate is closed once, by the driver or here.

    `call` answers a box whose `result` says whether the driver imported it, or raises. Where the driver may close it,
    what is open under the number tells whether it did: a high number, which nobody else gets meanwhile, because the
    kernel hands out the lowest free ones.
    """
    if closes_imported is False:
        with Fd.duplicate(fd) as ours:
            return call(ours.fileno())
    with _lending:
        lent = _high_duplicate(fd)
        file = os.fstat(lent)
        imported = False
        try:
            box = call(lent)
            imported = not box.result
            return box
        finally:
            if not (closes_imported and imported) and _is_open_as(lent, file):
                os.close(lent)


def made(chained: CData, imported: int | None, call: Callable[[], CData]) -> tuple[CData, Fd | None]:
    """The box that `call` makes, and the duplicate that is kept of what it was made from, to be exported again.

    The descriptor `imported`, if there is one, is lent by the structure `chained`.
    """
    if imported is None:
        return call(), None

    def lending(lent: int) -> CData:
        chained.fd = lent
        return call()

    source = Fd.duplicate(imported)
    try:
        return lend(imported, None, lending), source
    except BaseException:
        source.close()
        raise


def _high_duplicate(fd: int) -> int:
    import fcntl  # here: Windows has neither, and no descriptors to import
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    with Fd.duplicate(fd) as lowest:
        free = lowest.fileno()
    high = 768 + 2 * free  # with many free ones below it, however many are open
    base = high if most == resource.RLIM_INFINITY else min(high, (free + most) // 2)
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, base)


def _is_open_as(fd: int, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), file)
    except OSError:
        return False


def _after_fork_in_child() -> None:
    """Another thread of the parent may have had the lock, and is not here to release it."""
    global _lending
    _lending = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def take(ask: Callable[[], int], exports_new: bool | None, owned: type[Owned]) -> Owned:
    """What an export's query answers, owned by the caller; nothing of the driver's is closed.

    Where nobody knows whose it is, the driver is asked twice: the same number can only be one that it keeps. (Should it
    fail the second time, what it gave the first time stays open: closing a kept one would be worse.)
    """
    number = ask()
    if exports_new is None:
        again = ask()
        exports_new = again != number
        if exports_new:
            owned(again).close()
    return owned(number) if exports_new else owned.duplicate(number)


#: Where in an IPC handle drivers name the process. Older ones have the memory's type there, a small number: processes
#: with such numbers, the first of a container, are not told from it.
_PROCESS = slice(16, 20)
_MEMORY_TYPES = 4


def ipc_needs_descriptor(driver: Driver) -> bool:
    """Whether the bytes of an IPC handle mean nothing in another process, as far as the driver's age tells.

    NPU drivers have no IPC handles, and say so themselves.
    """
    return driver.api_version < (1, 15) and driver.kind != "npu"


def ipc_descriptor(driver: Driver, data: bytes) -> int | None:
    """The descriptor without which the bytes of an IPC handle, got in this process, mean nothing in another one.

    Drivers before API 1.15 put its number in front: whoever sends the handle passes the descriptor on, and the
    receiver's number takes that place. Newer ones (and some before) name the process, and fetch it from there.
    """
    process = os.getpid()
    names_process = process > _MEMORY_TYPES and process == int.from_bytes(data[_PROCESS], sys.byteorder)
    if names_process or not ipc_needs_descriptor(driver):
        return None
    number = int.from_bytes(data[:4], sys.byteorder)
    try:
        return number if buffer_size(number) else None
    except (OSError, OverflowError):
        return None


def with_descriptor(data: bytes, number: int) -> bytes:
    """The bytes of such a handle with the receiver's own number."""
    return number.to_bytes(4, sys.byteorder) + data[4:]


def chain(kind: str, imported: bool) -> CData:
    """What is chained to the descriptor of an import or of something exportable; NULL without a kind of OS handle."""
    if not kind:
        return ffi.NULL
    return import_fd_desc(kind) if imported else export_desc(kind)


def import_fd_desc(kind: str) -> CData:
    """The structure that makes an allocation an import; the caller sets its `fd`."""
    structure = lib.ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD
    return ffi.new("ze_external_memory_import_fd_t*", {"stype": structure, "flags": EXTERNAL_KINDS[kind], "fd": -1})


def export_desc(kind: str) -> CData:
    """The structure that asks for memory that can be exported."""
    structure = lib.ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC
    return ffi.new("ze_external_memory_export_desc_t*", {"stype": structure, "flags": EXTERNAL_KINDS[kind]})


def export(
    how: Policy, external_kind: str, size: int, function: str, query: Callable[[CData], int], driver: Driver, what: str
) -> Exported:
    """What `query` exports through the structure it is given, owned by the caller and of at least `size` bytes.

    `query` calls `function` and answers its result. Raises that, `NotSupported`. Windows handles: not run.
    """
    if sys.platform == "win32":
        from .ntwin import NtHandle

        handle = take(lambda: query_win32(external_kind, function, query, driver, what), how.exports_new, NtHandle)
        handle.source = "level_zero"
        return handle
    fd = take(lambda: query_fd(external_kind, function, query, driver, what), how.exports_new, Fd)
    if fd.size < size:
        found = repr(fd)
        fd.close()
        raise NotSupported(f"{function} answered ZE_RESULT_SUCCESS with {found}, which is not {what}")
    return fd


def export_object(
    owner: Image | PhysicalMemory, kind: str | None, function: str, properties: Callable[[CData], CData], what: str
) -> Exported:
    """An image's or physical memory's OS handle, owned by the caller: what `function` fills into `properties`.

    What was imported is given out again. Raises `InvalidArgument` unless it was made exportable so, `Closed`, and what
    `export` raises.
    """
    owner.require_open()
    if not owner.exportable or kind not in (None, owner.exportable):
        raise InvalidArgument(f"{owner!r} was not made exportable as {kind or 'anything'}: create it so")
    if owner._source is not None:
        return Fd.duplicate(owner._source)
    how = policy(owner.context, owner.device)
    with owner.held() as handle, owner.context.held() as context:

        def query(out: CData) -> int:
            return int(getattr(lib, function)(context, handle, properties(out)))

        return export(
            how, owner.exportable, owner.size, function, query, owner.device.driver, f"the {what} {handle:#x}"
        )


def query_fd(kind: str, function: str, query: Callable[[CData], int], driver: Driver, what: str) -> int:
    """The descriptor that `query` fills into the structure it is given. Raises what it answers, `NotSupported`."""
    structure = lib.ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD
    out = ffi.new("ze_external_memory_export_fd_t*", {"stype": structure, "flags": EXTERNAL_KINDS[kind], "fd": -1})
    check(query(out), function, driver=driver.handle, here=f"exporting {what}")
    if out.fd < 0:
        raise NotSupported(f"{function} answered ZE_RESULT_SUCCESS and gave no file descriptor")
    return int(out.fd)


def query_win32(kind: str, function: str, query: Callable[[CData], int], driver: Driver, what: str) -> int:
    """As `query_fd`, for a Windows handle."""
    structure = lib.ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_WIN32
    out = ffi.new("ze_external_memory_export_win32_handle_t*", {"stype": structure, "flags": EXTERNAL_KINDS[kind]})
    check(query(out), function, driver=driver.handle, here=f"exporting {what}")
    if not out.handle:
        raise NotSupported(f"{function} answered ZE_RESULT_SUCCESS and gave no handle")
    return int(out.handle)


def memory_query(context: int, address: int) -> Callable[[CData], int]:
    """The query that exports an allocation: zeMemGetAllocProperties."""
    structure = lib.ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES

    def query(out: CData) -> int:
        properties = ffi.new("ze_memory_allocation_properties_t*", {"stype": structure, "pNext": out})
        return int(lib.zeMemGetAllocProperties(context, address, properties, ffi.new("ze_device_handle_t*")))

    return query
