"""What drivers do differently with OS handles: each of them, as the software drivers imitate it."""

from __future__ import annotations

import mmap
import os
import threading
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from through_device import first_byte

import l0py
from l0py import dmabuf, external, imports, lib, softdriver
from l0py._ffi import ffi

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = 4096
ALL, NO_SHARED, DEVICE_ALONE = {"host", "device", "shared"}, {"host", "device"}, {"device"}

#: By release: the kinds of memory that are imported and exported, and whose descriptors are.
KNOWN = {
    "npu": (ALL, NO_SHARED, False, True),
    "22.43": (DEVICE_ALONE, DEVICE_ALONE, False, True),
    "26.13": (NO_SHARED, NO_SHARED, False, False),
    "26.14": (NO_SHARED, NO_SHARED, True, False),
}


class Imitated(NamedTuple):
    """A release and a context of the driver that imitates it."""

    release: str
    driver: str
    context: l0py.Context

    @property
    def device(self) -> l0py.Device:
        assert self.context.device is not None
        return self.context.device

    def inject(self, function: str, **how: Any) -> None:
        softdriver.inject(function, driver=self.driver, **how)


@pytest.fixture(params=KNOWN)
def imitated(request: pytest.FixtureRequest, device: l0py.Device, gpu: l0py.Device) -> Iterator[Imitated]:
    release = request.param
    where = device if release == "npu" else gpu
    if where is gpu:
        softdriver.imitate(release)
    external._observed.clear()
    with l0py.Context(where) as context:
        yield Imitated(release, where.type, context)
    softdriver.clear_faults(driver=where.type)
    softdriver.imitate("26.14")
    external._observed.clear()


def open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def a_page() -> int:
    fd = os.memfd_create("page")
    os.ftruncate(fd, PAGE)
    return fd


def test_what_each_driver_is_found_to_do(no_leaks: None, imitated: Imitated) -> None:
    how = external.policy(imitated.context, imitated.device)
    assert how[:4] == KNOWN[imitated.release]
    assert how.offered == imitated.device.external_memory
    softdriver.reset_record(driver=imitated.driver)
    softdriver.record_calls(driver=imitated.driver)
    try:
        with l0py.Context(imitated.device) as another:
            assert external.policy(another, imitated.device) == how
        assert "zeMemAllocDevice" not in softdriver.record(driver=imitated.driver)["calls"]  # observed once
    finally:
        softdriver.record_calls(False, driver=imitated.driver)


def test_another_release_is_watched_anew(gpu: l0py.Device) -> None:
    for release in ("26.14", "26.13", "26.14", "22.43", "26.14"):
        softdriver.imitate(release)
        with l0py.Context(gpu) as context:
            assert external.policy(context, gpu)[:4] == KNOWN[release]


@pytest.mark.parametrize("kind", ["host", "device", "shared"])
def test_an_import_is_the_memory_or_an_error(no_leaks: None, imitated: Imitated, kind: str) -> None:
    fd = a_page()
    with mmap.mmap(fd, PAGE) as seen:
        seen[:3] = b"abc"
        if kind in KNOWN[imitated.release][0]:
            with imitated.context.import_fd(fd, kind=kind) as memory:
                got = bytearray(PAGE)
                memory.copy_to(got)
                assert got[:3] == b"abc"
                memory.fill(7)
                assert seen[0] == 7
        else:
            with pytest.raises(l0py.NotSupported, match=f"would ignore an import as {kind} memory"):
                imitated.context.import_fd(fd, kind=kind)
    assert os.fstat(fd).st_size == PAGE  # the caller's own is untouched
    os.close(fd)


@pytest.mark.parametrize(("release", "kind"), [("22.43", "host"), ("22.43", "shared"), ("26.13", "shared")])
def test_the_ignored_imports_are_really_ignored(gpu: l0py.Device, release: str, kind: str) -> None:
    """SUCCESS and fresh memory, asked by the raw layer: what the refusal above is for."""
    fd = a_page()
    os.pwrite(fd, b"abc", 0)
    softdriver.imitate(release)
    out, chained = ffi.new("uintptr_t*"), external.import_fd_desc("dma_buf")
    chained.fd = fd
    host = ffi.new("ze_host_mem_alloc_desc_t*", {"stype": lib.ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC})
    local = ffi.new("ze_device_mem_alloc_desc_t*", {"stype": lib.ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC})
    (host if kind == "host" else local).pNext = chained
    try:
        with l0py.Context(gpu) as context:
            if kind == "host":
                result = lib.zeMemAllocHost(context.handle, host, PAGE, 0, out)
            else:
                result = lib.zeMemAllocShared(context.handle, local, host, PAGE, 0, gpu.handle, out)
            assert result == 0
            assert bytes(ffi.buffer(ffi.cast("char*", out[0]), 3)) != b"abc"
            assert lib.zeMemFree(context.handle, out[0]) == 0
    finally:
        softdriver.imitate("26.14")
        os.close(fd)


def test_memory_is_exportable_or_not_made(no_leaks: None, imitated: Imitated) -> None:
    context = imitated.context
    for kind, allocate in (("host", context.alloc_host), ("device", context.alloc_device)):
        if kind in KNOWN[imitated.release][1]:
            with allocate(PAGE, exportable=True) as memory, memory.export() as fd:
                assert (memory.exportable, fd.size) == ("dma_buf", PAGE)
        else:
            with pytest.raises(l0py.NotSupported, match=f"exports no {kind} memory"):
                allocate(PAGE, exportable=True)


def test_every_kind_that_is_offered(no_leaks: None, imitated: Imitated) -> None:
    context, offered = imitated.context, imitated.device.external_memory
    assert offered.exports == offered.imports == ({"dma_buf", "opaque_fd"} if "26" in imitated.release else {"dma_buf"})
    for kind in offered.exports:
        with (
            context.alloc_device(PAGE, exportable=kind) as memory,
            memory.export() as fd,
            memory.export(kind) as same,
            context.import_fd(fd, type=kind, kind="device") as imported,
            imported.export(kind) as again,
        ):
            assert fd.identity == same.identity == again.identity
            assert imported.exportable == imported.origin == kind
            memory.fill(3)
            assert first_byte(imported) == 3
    for kind in set(external.FD_KINDS) - offered.exports:
        with pytest.raises(l0py.NotSupported, match=f"cannot export memory as {kind}: it offers dma_buf"):
            context.alloc_device(PAGE, exportable=kind)
        with dmabuf.Fd(a_page()) as fd, pytest.raises(l0py.NotSupported, match=f"cannot import memory from {kind}"):
            context.import_fd(fd, type=kind)


def test_an_export_outlives_its_memory(no_leaks: None, imitated: Imitated) -> None:
    """Drivers that keep the exported descriptor close theirs with the memory."""
    with imitated.context.alloc_device(PAGE, exportable=True) as memory:
        memory.fill(5)
        first, second = memory.export(), memory.export()
    with first, second, imitated.context.import_fd(first, kind="device") as again:
        assert first.fileno() != second.fileno()
        assert first.identity == second.identity
        assert first_byte(again) == 5


def test_descriptors_are_neither_left_open_nor_closed_twice(no_leaks: None, imitated: Imitated) -> None:
    """While imports and exports run in some threads, descriptors of others must not vanish under them."""
    failures: list[BaseException] = []
    stop = threading.Event()

    def share() -> None:
        try:
            for _ in range(40):
                with (
                    imitated.context.alloc_device(PAGE, exportable=True) as memory,
                    memory.export() as fd,
                    imitated.context.import_fd(fd, kind="device"),
                    imitated.context.import_fd(fd, kind="device"),
                ):
                    pass
        except BaseException as error:
            failures.append(error)

    def others() -> None:
        try:
            while not stop.is_set():
                fd = os.memfd_create("other")
                inode = os.fstat(fd).st_ino
                os.sched_yield()
                assert os.fstat(fd).st_ino == inode
                os.close(fd)
        except BaseException as error:
            failures.append(error)

    sharing = [threading.Thread(target=share) for _ in range(3)]
    watching = [threading.Thread(target=others) for _ in range(2)]
    for thread in (*sharing, *watching):
        thread.start()
    for thread in sharing:
        thread.join()
    stop.set()
    for thread in watching:
        thread.join()
    assert not failures


def test_what_is_lent_is_not_among_many_open_descriptors() -> None:
    """The driver closes it, and another thread gets a descriptor of the same buffer: that one stays open."""
    others: list[dmabuf.Fd] = []

    def imported(lent: int) -> Any:
        os.close(lent)
        others.extend(dmabuf.Fd.duplicate(buffer) for _ in range(10))
        return ffi.new("l0_box*")

    with ExitStack() as opened, dmabuf.memfd(PAGE) as buffer:
        for _ in range(900):
            opened.enter_context(dmabuf.Fd.duplicate(buffer))
        external.lend(buffer.fileno(), None, imported)
        for fd in others:
            assert fd.identity == buffer.identity
            fd.close()


@pytest.mark.parametrize("function", ["zeMemAllocDevice", "zeMemGetAddressRange", "zeMemGetAllocProperties"])
def test_a_driver_that_fails_midway(no_leaks: None, imitated: Imitated, function: str) -> None:
    """At its first call, its second, ...: while the driver is watched, or afterwards."""
    for learned in (False, True):
        for number in range(5):
            if not learned:
                external._observed.clear()
            before = open_fds()
            imitated.inject(function, after=number, result="ZE_RESULT_ERROR_DEVICE_LOST")
            fd = a_page()
            with (
                suppress(l0py.DeviceLost),
                l0py.Context(imitated.device) as context,
                context.alloc_device(PAGE, exportable=True) as memory,
                memory.export(),
            ):
                context.import_fd(fd, kind="device").close()
            softdriver.clear_faults(driver=imitated.driver)
            os.fstat(fd)
            os.close(fd)
            assert open_fds() == before


@pytest.mark.parametrize("imitated", [release for release in KNOWN if release != "npu"], indirect=True)
def test_a_driver_that_cannot_be_watched_once_is_watched_each_time(no_leaks: None, imitated: Imitated) -> None:
    kind = "host" if "host" in KNOWN[imitated.release][0] else "device"
    before = open_fds()
    with dmabuf.Fd(a_page()) as fd:
        imitated.inject("zeMemAllocDevice", result="ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY")
        how = external.policy(imitated.context, imitated.device)
        assert (how.closes_imported, how.exports_new) == (None, None)
        for _ in range(3):
            imitated.context.import_fd(fd, kind=kind).close()
            with imitated.context.alloc_device(PAGE, exportable=True) as memory:
                memory.export().close()
                first, second = memory.export(), memory.export()
            with first, second:
                assert first.identity == second.identity
        assert fd.size == PAGE
    assert open_fds() == before


def test_a_buffer_that_is_shorter_than_the_driver_is_told(no_leaks: None, imitated: Imitated) -> None:
    """Its size is checked before; should the file shrink meanwhile, what was mapped is looked at."""
    fd = a_page()
    with pytest.raises(l0py.InvalidArgument, match="has 4096 bytes, fewer than the 8192"):
        imitated.context.import_fd(fd, 2 * PAGE, kind="device")
    with pytest.raises((l0py.NotSupported, l0py.BadDescriptor)) as caught:
        imports.import_fd(imitated.context, imitated.device, fd, 2 * PAGE, "dma_buf", "device", 0)
    if imitated.driver == "gpu":
        assert "mapped 4096 of the 8192 bytes" in str(caught.value)
    os.close(fd)


def test_a_driver_that_says_success_to_pages_and_makes_new_memory(
    gpu: l0py.Device, monkeypatch: pytest.MonkeyPatch, no_leaks: None
) -> None:
    """Release 22.43 does not list the extension, and ignores the structure."""
    softdriver.imitate("22.43")
    try:
        with l0py.Context(gpu) as context, mmap.mmap(-1, PAGE) as pages:
            with pytest.raises(l0py.NotSupported, match="memmap_sysmem"):
                context.import_buffer(pages)
            monkeypatch.setattr(l0py.Driver, "extensions", {"ZE_extension_external_memmap_sysmem": (1, 0)})
            with pytest.raises(l0py.NotSupported, match="did not import"):
                context.import_buffer(pages)
    finally:
        softdriver.imitate("26.14")


def test_the_policy_needs_nothing_that_windows_lacks(python: Any) -> None:
    script = """
import sys
for name in ("fcntl", "resource", "termios", "pwd", "grp"):
    sys.modules[name] = None
import os
del os.register_at_fork
sys.platform = "win32"
import l0py.context, l0py.external, l0py.imports, l0py.ipc, l0py.image, l0py.physical_memory
print("imported")
"""
    done = python(script)
    assert (done.stdout, done.stderr) == ("imported\n", "")


def test_an_export_that_the_driver_passes_over(device: l0py.Device, no_leaks: None) -> None:
    """NPU drivers say SUCCESS to a query for another kind, and leave the descriptor as it is."""
    with l0py.Context(device) as context, context.alloc_host(PAGE, exportable=True) as memory:
        opaque = l0py.Memory.from_handle(memory.address, PAGE, context=context, exportable="opaque_fd")
        with pytest.raises(l0py.NotSupported, match="gave no file descriptor"):
            opaque.export()
        opaque.close()


def test_an_export_that_is_smaller_than_the_memory(device: l0py.Device, no_leaks: None) -> None:
    with l0py.Context(device) as context, context.alloc_host(PAGE, exportable=True) as memory:
        larger = l0py.Memory.from_handle(memory.address, 2 * PAGE, context=context, exportable="dma_buf")
        with pytest.raises(l0py.NotSupported, match="which is not the memory at"):
            larger.export()
        larger.close()


def test_an_export_that_is_fd_0(context: l0py.Context, no_leaks: None) -> None:
    with context.alloc_host(4096, exportable=True) as memory:
        saved = os.dup(0)
        os.close(0)
        try:
            with memory.export() as fd:
                assert fd.size == 4096
        finally:
            os.dup2(saved, 0)
            os.close(saved)


def test_an_export_is_the_same_memory(context: l0py.Context, no_leaks: None) -> None:
    with context.alloc_host(5000, exportable=True) as memory, memory.export() as first, memory.export() as second:
        assert first.identity == second.identity
        assert first.fileno() != second.fileno()
        seen = mmap.mmap(first.fileno(), 5000)
        seen[4999] = 9
        assert memory.view()[4999] == 9
        seen.close()
        memory.close()
        with context.import_dma_buf(second, 5000) as again:  # it lives on behind the descriptor
            assert again.view()[4999] == 9


def test_device_memory_is_exported_too(context: l0py.Context, no_leaks: None) -> None:
    with (
        context.alloc_device(4096, exportable="dma_buf") as memory,
        memory.export() as fd,
        context.import_dma_buf(fd) as seen,
    ):
        assert seen.size == 4096


def test_exports_that_were_not_asked_for(context: l0py.Context) -> None:
    with context.alloc_host(4096) as plain, pytest.raises(l0py.InvalidArgument, match="allocate it so"):
        plain.export()
    with context.alloc_host(4096, exportable=True) as memory, pytest.raises(l0py.InvalidArgument, match="opaque_fd"):
        memory.export("opaque_fd")
    with pytest.raises(l0py.InvalidArgument, match="'magic'"):
        context.alloc_host(4096, exportable="magic")
