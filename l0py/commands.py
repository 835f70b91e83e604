"""Commands that a device carries out: copying memory and images, filling memory."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

from . import lib
from ._ffi import ffi
from ._ffi import lib as _c
from .errors import InvalidArgument, NotSupported, check
from .handles import CData, Handle, create

if TYPE_CHECKING:
    from .device import Device

__all__: list[str] = []

_FOREVER = 0xFFFFFFFFFFFFFFFF


class Transfers:
    """Copies and fills on one device of a context, one at a time and each finished before it returns.

    Made of zeCommandQueueCreate, zeCommandListCreate and zeFenceCreate, which every driver has. Once `failed`, nobody
    knows what the device still does with them: they are given up.
    """

    def __init__(self, context: Handle, device: Device) -> None:
        group = next((g for g in device.queue_groups if "copy" in g.kinds and g.queues), None)
        if group is None:
            raise NotSupported(f"{device.name} has no command queue that copies")
        self.failed = False
        self._max_pattern = group.max_fill_pattern
        self._driver = device.driver.handle
        self._lock = threading.Lock()
        queue = ffi.new(
            "ze_command_queue_desc_t*",
            {
                "stype": lib.ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                "ordinal": group.ordinal,
                "mode": lib.ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS,
            },
        )
        commands = ffi.new(
            "ze_command_list_desc_t*",
            {"stype": lib.ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC, "commandQueueGroupOrdinal": group.ordinal},
        )
        fence = ffi.new("ze_fence_desc_t*", {"stype": lib.ZE_STRUCTURE_TYPE_FENCE_DESC})
        with ExitStack() as undo:
            self._queue = self._made(context, _c.L0_COMMAND_QUEUE, "zeCommandQueueCreate", device.handle, queue)
            undo.enter_context(self._queue)
            self._list = self._made(context, _c.L0_COMMAND_LIST, "zeCommandListCreate", device.handle, commands)
            undo.enter_context(self._list)
            self._fence = self._made(self._queue, _c.L0_FENCE, "zeFenceCreate", fence)
            undo.pop_all()

    def _made(self, parent: Handle, native_kind: int, function: str, *arguments: object) -> Handle:
        with parent.held() as handle:
            box = create(native_kind, parent, function, handle, *arguments, driver=self._driver)
        return Handle(box, native_kind, self._driver)

    def close(self) -> None:
        """Gives the device's objects back."""
        with self._lock, ExitStack() as every:
            for one in (self._queue, self._list, self._fence):
                every.callback(one.close)

    def copy(self, target: int, source: int, size: int) -> None:
        """Calls zeCommandListAppendMemoryCopy."""
        self._run("zeCommandListAppendMemoryCopy", target, source, size)

    def fill(self, target: int, pattern: bytes, size: int) -> None:
        """Calls zeCommandListAppendMemoryFill. Raises `InvalidArgument` for a pattern that does not fit."""
        length = len(pattern)
        if not length or length & (length - 1) or length > self._max_pattern or size % length:
            raise InvalidArgument(
                f"a pattern of {length} bytes cannot fill {size}: its length must be a power of two, at most "
                f"{self._max_pattern}, and divide the size"
            )
        data = ffi.new("char[]", pattern)
        self._run("zeCommandListAppendMemoryFill", target, lib.address(data), length, size)

    def copy_to_image(self, image: int, source: int) -> None:
        """Calls zeCommandListAppendImageCopyFromMemory for the whole image."""
        self._run("zeCommandListAppendImageCopyFromMemory", image, source, ffi.NULL)

    def copy_from_image(self, target: int, image: int) -> None:
        """Calls zeCommandListAppendImageCopyToMemory for the whole image."""
        self._run("zeCommandListAppendImageCopyToMemory", target, image, ffi.NULL)

    def _run(self, append: str, *arguments: object) -> None:
        with self._lock, self._queue.held() as queue, self._list.held() as commands, self._fence.held() as fence:
            lists: CData = ffi.new("ze_command_list_handle_t[]", [commands])
            try:
                self._call(append, commands, *arguments, 0, 0, ffi.NULL)
                self._call("zeCommandListClose", commands)
                self._call("zeFenceReset", fence)
                self._call("zeCommandQueueExecuteCommandLists", queue, 1, lists, fence)
                self._call("zeFenceHostSynchronize", fence, _FOREVER)
                self._call("zeCommandListReset", commands)  # at once: a list may keep alive what it copied
            except BaseException:  # an interrupt leaves as much undone as an error
                self.failed = True
                lib.zeCommandQueueSynchronize(queue, _FOREVER)  # what the device still copies may be freed next
                raise

    def _call(self, function: str, *arguments: object) -> None:
        check(getattr(lib, function)(*arguments), function, driver=self._driver)
