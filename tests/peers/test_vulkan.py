"""Vulkan on lavapipe: memory that it exports as an fd, and l0py's memory that it imports by its pages.

Its commands write what the NPU reads, and read what it wrote.
"""

from __future__ import annotations

import mmap
import struct
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from debian_packages import lavapipe
from npu_helpers import nothing_leaks
from peer_helpers import COUNT, SIZE, Runtime, require

from l0py import dmabuf

if TYPE_CHECKING:
    from peer_helpers import Exchange

    import l0py

pytestmark = [pytest.mark.own_process, pytest.mark.usefixtures("runtime")]

EXTENSIONS = ["VK_KHR_external_memory", "VK_KHR_external_memory_fd", "VK_EXT_external_memory_host"]


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    require("vulkan")
    python, environment = lavapipe(tmp_path)
    return Runtime(environment, python)


class Vulkan:
    """A device, and buffers whose memory comes from elsewhere or goes there."""

    def __init__(self) -> None:
        import vulkan as vk

        self.vk = vk
        application = vk.VkApplicationInfo(apiVersion=vk.VK_MAKE_VERSION(1, 1, 0))
        self.instance = vk.vkCreateInstance(vk.VkInstanceCreateInfo(pApplicationInfo=application), None)
        (physical,) = vk.vkEnumeratePhysicalDevices(self.instance)
        assert "llvmpipe" in vk.vkGetPhysicalDeviceProperties(physical).deviceName
        queues = [vk.VkDeviceQueueCreateInfo(queueFamilyIndex=0, pQueuePriorities=[1.0])]
        create = vk.VkDeviceCreateInfo(pQueueCreateInfos=queues, ppEnabledExtensionNames=EXTENSIONS)
        self.device = vk.vkCreateDevice(physical, create, None)
        self.queue = vk.vkGetDeviceQueue(self.device, 0, 0)
        self.pool = vk.vkCreateCommandPool(self.device, vk.VkCommandPoolCreateInfo(queueFamilyIndex=0), None)

    def exported(self) -> tuple[Any, dmabuf.Fd]:
        """A buffer and its memory's descriptor."""
        vk = self.vk
        kind = vk.VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT
        buffer, memory = self._buffer(kind, vk.VkExportMemoryAllocateInfo(handleTypes=kind))
        get_fd = vk.vkGetDeviceProcAddr(self.device, "vkGetMemoryFdKHR")
        return buffer, dmabuf.Fd(get_fd(self.device, vk.VkMemoryGetFdInfoKHR(memory=memory, handleType=kind)))

    def over(self, memory: l0py.Memory) -> Any:
        """A buffer in l0py's memory."""
        vk = self.vk
        kind = vk.VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT
        pointer = vk.ffi.cast("void*", memory.address)
        return self._buffer(kind, vk.VkImportMemoryHostPointerInfoEXT(handleType=kind, pHostPointer=pointer))[0]

    def write(self, buffer: Any, values: Any) -> None:
        data = self.vk.ffi.from_buffer(values)
        self._submit(lambda commands: self.vk.vkCmdUpdateBuffer(commands, buffer, 0, SIZE, data))

    def read(self, buffer: Any) -> Any:
        vk = self.vk
        copy, memory = self._buffer(0, vk.ffi.NULL)
        region = vk.VkBufferCopy(srcOffset=0, dstOffset=0, size=SIZE)
        self._submit(lambda commands: vk.vkCmdCopyBuffer(commands, buffer, copy, 1, [region]))
        values = np.frombuffer(vk.vkMapMemory(self.device, memory, 0, SIZE, 0), np.float32).copy()
        vk.vkUnmapMemory(self.device, memory)
        vk.vkDestroyBuffer(self.device, copy, None)
        vk.vkFreeMemory(self.device, memory, None)
        return values

    def _buffer(self, handle_type: int, chain: Any) -> tuple[Any, Any]:
        vk = self.vk
        usage = vk.VK_BUFFER_USAGE_TRANSFER_SRC_BIT | vk.VK_BUFFER_USAGE_TRANSFER_DST_BIT
        external = vk.VkExternalMemoryBufferCreateInfo(handleTypes=handle_type)
        create = vk.VkBufferCreateInfo(pNext=external, size=SIZE, usage=usage, sharingMode=vk.VK_SHARING_MODE_EXCLUSIVE)
        buffer = vk.vkCreateBuffer(self.device, create, None)
        assert vk.vkGetBufferMemoryRequirements(self.device, buffer).size == SIZE
        # lavapipe has one type of memory: device-local, and visible to the host without flushes.
        allocate = vk.VkMemoryAllocateInfo(pNext=chain, allocationSize=SIZE, memoryTypeIndex=0)
        memory = vk.vkAllocateMemory(self.device, allocate, None)
        vk.vkBindBufferMemory(self.device, buffer, memory, 0)
        return buffer, memory

    def _submit(self, record: Any) -> None:
        vk = self.vk
        allocate = vk.VkCommandBufferAllocateInfo(
            commandPool=self.pool, level=vk.VK_COMMAND_BUFFER_LEVEL_PRIMARY, commandBufferCount=1
        )
        commands = vk.vkAllocateCommandBuffers(self.device, allocate)
        vk.vkBeginCommandBuffer(commands[0], vk.VkCommandBufferBeginInfo())
        record(commands[0])
        vk.vkEndCommandBuffer(commands[0])
        vk.vkQueueSubmit(self.queue, 1, [vk.VkSubmitInfo(pCommandBuffers=[commands[0]])], vk.VK_NULL_HANDLE)
        vk.vkQueueWaitIdle(self.queue)


def payload(fd: dmabuf.Fd) -> int:
    """Where in lavapipe's memfd the memory begins. Opaque fds are the driver's own; on a GPU they are dma-bufs."""
    assert "memfd:llvmpipe" in str(Path(f"/proc/self/fd/{fd.fileno()}").readlink())
    with mmap.mmap(fd.fileno(), 16) as head:
        size, begin = struct.unpack("QQ", head)
    assert (size, begin) == (fd.size, 4096)
    return int(begin)


def test_vulkan_exports_the_fd(exchange: Exchange, context: l0py.Context) -> None:
    vulkan, npu = Vulkan(), exchange.npu
    (x, x_fd), (y, y_fd) = vulkan.exported(), vulkan.exported()
    with (
        nothing_leaks(),
        context.import_dma_buf(x_fd) as source,
        context.import_dma_buf(y_fd) as target,
        npu.remote_tensor(source, [COUNT], "f32", offset=payload(x_fd)) as first,
        npu.remote_tensor(target, [COUNT], "f32", offset=payload(y_fd)) as second,
    ):
        exchange(first, second, partial(vulkan.write, x), partial(vulkan.read, y))
        source.view("f")[payload(x_fd) // 4] = 31  # and what the host writes is what Vulkan reads
        assert vulkan.read(x)[0] == 31
    for fd in (x_fd, y_fd):
        fd.close()


def test_an_import_outlives_the_descriptor(context: l0py.Context) -> None:
    vulkan = Vulkan()
    buffer, fd = vulkan.exported()
    begin = payload(fd)
    with context.import_dma_buf(fd) as memory:
        fd.close()
        vulkan.write(buffer, np.full(COUNT, 6, np.float32))
        assert memory.view("f")[begin // 4 + COUNT - 1] == 6


def test_our_memory_in_vulkan(exchange: Exchange, context: l0py.Context) -> None:
    vulkan = Vulkan()
    with context.alloc_host(SIZE, exportable=True) as source, context.alloc_host(SIZE, exportable=True) as target:
        x, y = vulkan.over(source), vulkan.over(target)
        exchange(source, target, partial(vulkan.write, x), partial(vulkan.read, y))
        target.numpy("f4")[:] = 5
        assert (vulkan.read(y) == 5).all()
