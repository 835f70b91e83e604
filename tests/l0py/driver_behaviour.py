"""What a software driver does with memory, asked through the raw layer: prints one answer a row, as JSON.

An answer is null where the loader cannot pass the question on.

Run with the release to imitate (`npu`, or one of the GPU's) and nothing else in the process.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from other_loaders import wraps_handles

import l0py
from l0py import lib, softdriver
from l0py._enums import ze_result_t

ffi = lib.ffi
RELEASE = sys.argv[1]
DEVICE = l0py.find_device("npu" if RELEASE == "npu" else "gpu")
CONTEXT = l0py.Context(DEVICE)
HERE = CONTEXT.handle
DMA_BUF, OPAQUE_FD = lib.ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF, lib.ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD


def name(result: int) -> str:
    return ze_result_t[result].removeprefix("ZE_RESULT_").removeprefix("ERROR_")


def allocate(kind: str, chained: Any = None, size: int = 4096, alignment: int = 0) -> tuple[str, int]:
    """The result, and the address."""
    out, chain = ffi.new("uintptr_t*"), chained if chained is not None else ffi.NULL
    host = ffi.new("ze_host_mem_alloc_desc_t*", {"stype": lib.ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC})
    device = ffi.new("ze_device_mem_alloc_desc_t*", {"stype": lib.ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC})
    (host if kind == "host" else device).pNext = chain
    if kind == "host":
        result = lib.zeMemAllocHost(HERE, host, size, alignment, out)
    elif kind == "device":
        result = lib.zeMemAllocDevice(HERE, device, size, alignment, DEVICE.handle, out)
    else:
        result = lib.zeMemAllocShared(HERE, device, host, size, alignment, DEVICE.handle, out)
    return name(result), out[0]


def free(address: int) -> str:
    return name(lib.zeMemFree(HERE, address))


def exported(address: int, flags: int = DMA_BUF) -> tuple[str, int]:
    """The result of an export query, and the descriptor."""
    query = ffi.new(
        "ze_external_memory_export_fd_t*",
        {"stype": lib.ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD, "flags": flags, "fd": -1},
    )
    properties = ffi.new(
        "ze_memory_allocation_properties_t*",
        {"stype": lib.ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES, "pNext": query},
    )
    return name(lib.zeMemGetAllocProperties(HERE, address, properties, ffi.NULL)), query.fd


def import_desc(fd: int, flags: int = DMA_BUF, after: Any = None) -> Any:
    desc = ffi.new(
        "ze_external_memory_import_fd_t*",
        {"stype": lib.ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD, "flags": flags, "fd": fd},
    )
    if after is not None:
        desc.pNext = after
    return desc


def export_desc(flags: int = DMA_BUF, after: Any = None) -> Any:
    desc = ffi.new(
        "ze_external_memory_export_desc_t*",
        {"stype": lib.ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC, "flags": flags},
    )
    if after is not None:
        desc.pNext = after
    return desc


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def memory(size: int = 8192) -> int:
    fd = os.memfd_create("row")
    os.ftruncate(fd, size)
    return fd


def imports(kind: str) -> list[Any]:
    """Whether it is the descriptor's memory, and whether the descriptor is still open."""
    fd = memory()
    given = os.dup(fd)
    result, address = allocate(kind, import_desc(given), 8192)
    if result != "SUCCESS":
        return [result, is_open(given)]
    os.pwrite(fd, b"x", 7)
    same = bytes(ffi.buffer(ffi.cast("char*", address), 8))[7:] == b"x"
    return [result, same, is_open(given)]


def range_of(address: int) -> tuple[str, int, int]:
    base, size = ffi.new("uintptr_t*"), ffi.new("size_t*")
    result = name(lib.zeMemGetAddressRange(HERE, address, base, size))
    return result, base[0], size[0]


def second_link() -> bool:
    """Whether an import that is the second structure of a chain is done."""
    chained = import_desc(memory())
    _, address = allocate("device", export_desc(after=chained), 4096)
    return range_of(address)[2] == 8192


def two_exports() -> str:
    _, address = allocate("device", export_desc())
    first, second = exported(address)[1], exported(address)[1]
    free(address)
    return f"{'kept' if first == second else 'new'}, {'open' if is_open(first) else 'closed'} after the free"


def foreign() -> list[Any]:
    nothing = ffi.new("char[64]")
    address = lib.address(nothing)
    properties = ffi.new(
        "ze_memory_allocation_properties_t*",
        {"stype": lib.ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES, "type": lib.ZE_MEMORY_TYPE_SHARED},
    )
    result = name(lib.zeMemGetAllocProperties(HERE, address, properties, ffi.NULL))
    told = properties.type == lib.ZE_MEMORY_TYPE_UNKNOWN
    return [result, "UNKNOWN" if told else "untouched", range_of(address)[0], free(address)]


def told_of(kind: str, size: int = 4096) -> list[Any]:
    """The page size, whether the device is told, whether the range begins at the address."""
    _, address = allocate(kind, size=size)
    properties = ffi.new(
        "ze_memory_allocation_properties_t*", {"stype": lib.ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES}
    )
    device = ffi.new("ze_device_handle_t*", 1)
    lib.zeMemGetAllocProperties(HERE, address, properties, device)
    names = {DEVICE.handle: "device", 0: "none", 1: "untouched"}
    # A loader that wraps handles makes an object of whatever the driver left there.
    who = names.get(device[0], "untouched" if wraps_handles() else "unknown")
    return [properties.pageSize, who, range_of(address)[1] == address]


def pages() -> list[Any]:
    """An import of host pages: the result, and whether the pointer is the pages'; then that of an empty range."""
    import mmap

    own = mmap.mmap(-1, 8192)
    address = lib.address(ffi.from_buffer(own))
    desc = ffi.new(
        "ze_external_memmap_sysmem_ext_desc_t*",
        {"stype": lib.ZE_STRUCTURE_TYPE_EXTERNAL_MEMMAP_SYSMEM_EXT_DESC, "size": 8192},
    )
    desc.pSystemMemory = address
    result, made = allocate("host", desc, 8192)
    free(made)
    desc.size = 0
    return [result, made == address, allocate("host", desc, 8192)[0]]


def freed_within(exportable: bool) -> str:
    _, address = allocate("device", export_desc() if exportable else None, 8192)
    return free(address + 4096)


def freed_by(policy: int) -> str:
    _, address = allocate("device")
    desc = ffi.new(
        "ze_memory_free_ext_desc_t*", {"stype": lib.ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC, "freePolicy": policy}
    )
    return name(lib.zeMemFreeExt(HERE, desc, address))


def chained(stype: int) -> Any:
    return ffi.new("ze_base_desc_t*", {"stype": ffi.cast("ze_structure_type_t", stype)})


def unknown_query() -> str:
    _, address = allocate("device", export_desc())
    structure = lib.ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES
    properties = ffi.new("ze_memory_allocation_properties_t*", {"stype": structure, "pNext": chained(0x999)})
    return name(lib.zeMemGetAllocProperties(HERE, address, properties, ffi.NULL))


def destroyed_before_its_memory() -> str:
    desc = ffi.new("ze_context_desc_t*", {"stype": lib.ZE_STRUCTURE_TYPE_CONTEXT_DESC})
    other, out = ffi.new("uintptr_t*"), ffi.new("uintptr_t*")
    lib.zeContextCreate(DEVICE.driver.handle, desc, other)
    host = ffi.new("ze_host_mem_alloc_desc_t*", {"stype": lib.ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC})
    assert lib.zeMemAllocHost(other[0], host, 4096, 0, out) == 0
    return name(lib.zeContextDestroy(other[0]))


def ipc(kind: str) -> str:
    _, address = allocate(kind)
    return name(lib.zeMemGetIpcHandle(HERE, address, ffi.new("ze_ipc_mem_handle_t*")))


def can_access_itself() -> list[Any]:
    out = ffi.new("ze_bool_t*", 7)
    return [name(lib.zeDeviceCanAccessPeer(DEVICE.handle, DEVICE.handle, out)), out[0]]


ROWS = {
    "api version": lambda: list(DEVICE.driver.api_version),
    "handle types": lambda: [sorted(DEVICE.external_memory.imports), sorted(DEVICE.external_memory.exports)],
    "host import": lambda: imports("host"),
    "device import": lambda: imports("device"),
    "shared import": lambda: imports("shared"),
    "import flags 0": lambda: allocate("device", import_desc(memory(), 0))[0],
    "import flags of two": lambda: allocate("device", import_desc(memory(), DMA_BUF | OPAQUE_FD))[0],
    "import of no memory": lambda: allocate("device", import_desc(os.open(os.devnull, os.O_RDWR)))[0],
    "import of a closed fd": lambda: allocate("device", import_desc(1 << 20))[0],
    "import of too little": lambda: range_of(allocate("device", import_desc(memory(4096)), 8192)[1])[2],
    "import in a second link": second_link,
    "export flags 0": lambda: allocate("device", export_desc(0))[0],
    "export flags opaque_fd": lambda: allocate("device", export_desc(OPAQUE_FD))[0],
    "export flags of two": lambda: allocate("device", export_desc(DMA_BUF | 0x40))[0],
    "host export": lambda: exported(allocate("host", export_desc())[1])[0],
    "shared export": lambda: exported(allocate("shared", export_desc())[1])[0],
    "export of another kind": lambda: [
        (answer := exported(allocate("device", export_desc())[1], OPAQUE_FD))[0],
        answer[1] >= 0,
    ],
    "two exports": two_exports,
    "export that was not asked for": lambda: [
        (answer := exported(allocate("device")[1]))[0],
        os.lseek(answer[1], 0, os.SEEK_END) if answer[1] >= 0 else 0,
    ],
    "unknown query": unknown_query,
    "unknown link, host": lambda: allocate("host", chained(0x999))[0],
    "unknown link, device": lambda: allocate("device", chained(0x999))[0],
    "unknown link, shared": lambda: allocate("shared", chained(0x999))[0],
    "host pages": pages,
    "size 0": lambda: allocate("host", size=0)[0],
    "alignment 3": lambda: allocate("host", alignment=3)[0],
    "alignment 64": lambda: allocate("host", alignment=64)[1] % 64,
    "alignment 2 MiB": lambda: all(allocate("device", alignment=2 << 20)[1] % (2 << 20) == 0 for _ in range(8)),
    "too large": lambda: allocate("host", size=1 << 62)[0],
    "foreign address": foreign,
    "told of host": lambda: told_of("host"),
    "told of device": lambda: told_of("device"),
    "told of large device": lambda: told_of("device", 2 << 20),
    "free twice": lambda: [free(address := allocate("device", export_desc())[1]), free(address)],
    "free within": lambda: freed_within(True),
    "free within a pool": lambda: freed_within(False),
    "free, blocking": lambda: freed_by(lib.ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE),
    "free, deferred": lambda: freed_by(lib.ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE),
    "ipc of host": lambda: ipc("host"),
    "ipc of device": lambda: ipc("device"),
    "ipc of shared": lambda: ipc("shared"),
    "access to itself": can_access_itself,
    "residency of a foreign address": lambda: name(
        lib.zeContextMakeMemoryResident(HERE, DEVICE.handle, lib.address(ffi.new("char[8]")), 8)
    ),
    "system barrier": lambda: name(lib.zeContextSystemBarrier(HERE, DEVICE.handle)),
    "system barrier of no device": lambda: None if wraps_handles() else name(lib.zeContextSystemBarrier(HERE, 0)),
    "context destroyed before its memory": destroyed_before_its_memory,
    "context status": lambda: name(lib.zeContextGetStatus(HERE)),
    "device status": lambda: name(lib.zeDeviceGetStatus(DEVICE.handle)),
}

if RELEASE != "npu":
    softdriver.imitate(RELEASE)
print(json.dumps({row: ask() for row, ask in ROWS.items()}))
