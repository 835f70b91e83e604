"""Fences behind descriptors. What only a device can show runs where vgem is; the rest on a stand-in."""

from __future__ import annotations

import errno
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from l0py import dmabuf

if TYPE_CHECKING:
    from stand_in import StandIn
    from vgem import Vgem

EXPORT, IMPORT = 0xC0086202, 0x40086203


def test_a_reader_waits_for_the_writer_alone(vgem: Vgem) -> None:
    handle, buffer = vgem.buffer()
    with buffer:
        reading = vgem.use(handle, write=False)
        with dmabuf.export_sync_file(buffer, "read") as to_read, dmabuf.export_sync_file(buffer, "write") as to_write:
            assert to_read.kind == to_write.kind == "sync_file"
            assert (to_read.signalled, to_write.signalled) == (True, False)
            vgem.signal(reading)
            assert to_write.wait(5)
        writing = vgem.use(handle, write=True)
        with dmabuf.export_sync_file(buffer, "read") as to_read, dmabuf.export_sync_file(buffer) as to_both:
            assert (to_read.signalled, to_both.signalled) == (False, False)
            assert not os.get_inheritable(to_read.fileno())
            vgem.signal(writing)
            assert to_read.wait()
            assert to_both.wait(0)


def test_what_a_real_sync_file_tells(vgem: Vgem) -> None:
    handle, buffer = vgem.buffer()
    with buffer:
        fence = vgem.use(handle, write=True)
        with dmabuf.export_sync_file(buffer) as sync_file:
            info = sync_file.info
            assert info.status == 0
            assert [(one.driver, one.name, one.status) for one in info.fences] == [("vgem", "unbound", 0)]
            before = time.monotonic_ns()
            vgem.signal(fence)
            info = sync_file.info
            assert info.status == 1
            assert info.fences[0].status == 1
            assert before <= info.fences[0].timestamp <= time.monotonic_ns()


def test_real_sync_files_merge(vgem: Vgem) -> None:
    (first, one), (second, other) = vgem.buffer(), vgem.buffer()
    with one, other:
        fences = vgem.use(first, write=True), vgem.use(second, write=True)
        with dmabuf.export_sync_file(one) as a, dmabuf.export_sync_file(other) as b:
            both = dmabuf.merge("both", a, b)
        with both:
            assert both.info.name == "both"
            assert len(both.info.fences) == 2
            vgem.signal(fences[0])
            assert not both.wait(0.01)
            assert sorted(fence.status for fence in both.info.fences) == [0, 1]
            vgem.signal(fences[1])
            assert both.wait(5)


def test_a_real_fence_goes_into_another_buffer(vgem: Vgem, dma_buf: dmabuf.Fd) -> None:
    handle, buffer = vgem.buffer()
    with buffer:
        fence = vgem.use(handle, write=True)
        with dmabuf.export_sync_file(dma_buf) as idle:
            assert idle.signalled
        with dmabuf.export_sync_file(buffer) as sync_file:
            dmabuf.import_sync_file(dma_buf, sync_file, "write")
        with dmabuf.export_sync_file(dma_buf, "read") as busy:
            assert not busy.signalled
            threading.Timer(0.05, vgem.signal, [fence]).start()
            start = time.monotonic()
            with dmabuf.cpu_access(dma_buf, "read"):  # which waits for the writer
                assert busy.signalled
            assert time.monotonic() - start > 0.03


def test_export_and_import(stand_in: StandIn) -> None:
    with dmabuf.Fd(stand_in.dma_buf()) as buffer:
        for access, flags in (("read", 1), ("write", 2), ("read_write", 3)):
            with dmabuf.export_sync_file(buffer, access) as exported:
                assert stand_in.calls.pop() == ("export", flags, -1)
                dmabuf.import_sync_file(buffer, exported, access)
                assert stand_in.calls.pop() == ("import", flags, exported.fileno())
        for wrong in ("", "both", None):
            with pytest.raises(ValueError, match="access is"):
                dmabuf.export_sync_file(buffer, wrong)  # type: ignore[arg-type]


def test_merge(stand_in: StandIn) -> None:
    with dmabuf.SyncFile(stand_in.sync_file(signalled=True)) as one, dmabuf.SyncFile.duplicate(one) as other:
        stand_in.calls.clear()
        with dmabuf.merge("both", one, other) as both:
            assert ("merge", b"both", other.fileno(), 0, 0) in stand_in.calls
            assert both.signalled
        with pytest.raises(ValueError, match="31 bytes"):
            dmabuf.merge("x" * 32, one, other)


def test_info_takes_two_calls(stand_in: StandIn) -> None:
    stand_in.fences = [(b"job 7", b"npu", 1, 123), (b"job 8", b"gpu", -errno.EIO, 456)]
    with dmabuf.SyncFile(stand_in.sync_file(signalled=True)) as sync_file:
        stand_in.calls.clear()
        assert sync_file.info == (
            "stand-in",
            1,
            (("job 7", "npu", 1, 123), ("job 8", "gpu", -errno.EIO, 456)),
        )
        assert stand_in.calls == [("info", 0, 0, 0, False), ("info", 0, 2, 0, True)]
        assert sync_file.info.fences[0].driver == "npu"
        assert repr(sync_file) == f"<l0py.dmabuf.SyncFile {sync_file.fileno()}>"


def test_waiting(stand_in: StandIn) -> None:
    with dmabuf.SyncFile(stand_in.sync_file(signalled=False)) as sync_file:
        assert not sync_file.signalled
        start = time.monotonic()
        assert not sync_file.wait(0.05)
        assert 0.04 < time.monotonic() - start < 5
        threading.Timer(0.05, os.eventfd_write, [sync_file.fileno(), 1]).start()
        assert sync_file.wait(1e10)
        assert sync_file.signalled
        assert sync_file.wait()
        for wrong in (-1, float("nan")):
            with pytest.raises(ValueError, match="cannot wait"):
                sync_file.wait(wrong)
    with pytest.raises(ValueError, match="closed"):
        sync_file.wait()
    assert repr(sync_file) == "<l0py.dmabuf.SyncFile (closed)>"


def test_waiting_on_what_was_closed_by_its_number(stand_in: StandIn) -> None:
    sync_file = dmabuf.SyncFile(stand_in.sync_file(signalled=False))
    os.close(sync_file.fileno())
    with pytest.raises(OSError, match="Bad file descriptor"):
        sync_file.wait()
    with pytest.raises(OSError, match="Bad file descriptor"):
        sync_file.close()


def test_what_is_no_sync_file_stays_the_callers(memfd: int) -> None:
    for use in (
        lambda: dmabuf.SyncFile(memfd),
        lambda: dmabuf.merge("a", memfd, memfd),
        lambda: dmabuf.import_sync_file(memfd, memfd),
    ):
        with pytest.raises(OSError, match=r"is no sync file \(its kind: memfd\)") as caught:
            use()
        assert caught.value.errno == errno.EINVAL
    os.fstat(memfd)


def test_what_has_no_fences(memfd: int, stand_in: StandIn) -> None:
    for number, kind in ((memfd, "memfd"), (os.open("/", os.O_RDONLY), "other")):
        with pytest.raises(OSError, match=rf"no dma-buf \(its kind: {kind}\)") as caught:
            dmabuf.export_sync_file(number)
        assert caught.value.errno == errno.ENOTTY
    os.close(number)
    with dmabuf.Fd(stand_in.dma_buf()) as buffer:
        stand_in.fail(EXPORT, errno.ENOTTY)  # as before Linux 6.0
        with pytest.raises(OSError, match=r"Linux 6\.0 is the first"):
            dmabuf.export_sync_file(buffer)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOMEM, errno.EINVAL])
def test_a_failing_call_leaves_nothing(stand_in: StandIn, code: int) -> None:
    with dmabuf.Fd(stand_in.dma_buf()) as buffer, dmabuf.SyncFile(stand_in.sync_file(signalled=True)) as fence:
        uses: list[tuple[int, Any]] = [
            (EXPORT, lambda: dmabuf.export_sync_file(buffer)),
            (IMPORT, lambda: dmabuf.import_sync_file(buffer, fence)),
            (0xC0303E03, lambda: dmabuf.merge("a", fence, fence)),
        ]
        for number, use in uses:
            stand_in.fail(number, code)
            with pytest.raises(OSError) as caught:
                use()
            assert caught.value.errno == code
        stand_in.fail(0xC0383E04, code)
        with pytest.raises(OSError):
            _ = fence.info
