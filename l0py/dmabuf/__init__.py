"""Buffers behind file descriptors: owned, made, looked at, waited for and handed over. Needs no driver.

A dma-buf is memory that the kernel shares by descriptor; a memfd behaves the same for almost everything here. What asks
the kernel raises OSError where there is no Linux; the module can be imported everywhere.

The calls: `memfd`, `allocate` (from /dev/dma_heap), `from_memfd` and `create_udmabuf` (/dev/udmabuf) make buffers;
`cpu_access` opens a window for the CPU; `export_sync_file`, `import_sync_file` and `merge` handle fences; `send`,
`receive`, `fetch` and multiprocessing's pickling pass descriptors on.
"""

from .fd import Fd, buffer_size, kind_of
from .handover import allow_fetch, fetch, receive, send
from .heaps import allocate, create_udmabuf, from_memfd, heaps, memfd
from .sync import CpuAccess, cpu_access
from .sync_file import Fence, SyncFile, SyncFileInfo, export_sync_file, import_sync_file, merge

__all__ = [
    "CpuAccess",
    "Fd",
    "Fence",
    "SyncFile",
    "SyncFileInfo",
    "allocate",
    "allow_fetch",
    "buffer_size",
    "cpu_access",
    "create_udmabuf",
    "export_sync_file",
    "fetch",
    "from_memfd",
    "heaps",
    "import_sync_file",
    "kind_of",
    "memfd",
    "merge",
    "receive",
    "send",
]
