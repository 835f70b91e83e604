"""The kernel's virtual GEM device: dma-bufs with real fences, and nobody but us to signal them."""

from __future__ import annotations

import array
import fcntl
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from l0py import dmabuf

if TYPE_CHECKING:
    from typing_extensions import Self

# include/uapi/drm/drm.h, vgem_drm.h
DRM_VERSION = 0xC0406400
DRM_MODE_CREATE_DUMB = 0xC02064B2
DRM_PRIME_HANDLE_TO_FD = 0xC00C642D
VGEM_FENCE_ATTACH = 0xC0106441
VGEM_FENCE_SIGNAL = 0x40086442
DRM_RDWR, DRM_CLOEXEC = 2, 0o2000000


class Vgem(dmabuf.Fd):
    """The open device."""

    __slots__ = ()

    @classmethod
    def find(cls) -> Self | None:
        for node in sorted(Path("/dev/dri").glob("card*")):
            try:
                device = cls(os.open(node, os.O_RDWR | os.O_CLOEXEC))
            except OSError:
                continue
            if device.driver() == "vgem":
                return device
            device.close()
        return None

    def driver(self) -> str:
        name = array.array("B", bytes(32))
        version = bytearray(struct.pack("=iii4xQQQQQQ", 0, 0, 0, 31, name.buffer_info()[0], 0, 0, 0, 0))
        fcntl.ioctl(self.fileno(), DRM_VERSION, version, True)
        return name.tobytes().split(b"\0")[0].decode()

    def buffer(self) -> tuple[int, dmabuf.Fd]:
        """A buffer's handle here, and its dma-buf."""
        made = bytearray(struct.pack("=IIIIIIQ", 32, 32, 32, 0, 0, 0, 0))
        fcntl.ioctl(self.fileno(), DRM_MODE_CREATE_DUMB, made, True)
        handle = struct.unpack("=IIIIIIQ", made)[4]
        exported = bytearray(struct.pack("=IIi", handle, DRM_RDWR | DRM_CLOEXEC, -1))
        fcntl.ioctl(self.fileno(), DRM_PRIME_HANDLE_TO_FD, exported, True)
        return handle, dmabuf.Fd(struct.unpack("=IIi", exported)[2])

    def use(self, handle: int, *, write: bool) -> int:
        """Somebody reads or writes the buffer from now on; the number of the fence that ends it."""
        fence = bytearray(struct.pack("=IIII", handle, int(write), 0, 0))
        fcntl.ioctl(self.fileno(), VGEM_FENCE_ATTACH, fence, True)
        return int(struct.unpack("=IIII", fence)[2])

    def signal(self, fence: int) -> None:
        """The use ends."""
        fcntl.ioctl(self.fileno(), VGEM_FENCE_SIGNAL, struct.pack("=II", fence, 0))
