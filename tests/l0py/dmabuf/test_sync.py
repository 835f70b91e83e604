"""Windows of CPU access."""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING, Any

import pytest

from l0py import dmabuf

if TYPE_CHECKING:
    from pathlib import Path

    from stand_in import StandIn

SYNC = 0x40086200
READ, WRITE, END = 1, 2, 4


@pytest.mark.parametrize(("direction", "flags"), [("read", READ), ("write", WRITE), ("read_write", READ | WRITE)])
def test_a_window_begins_and_ends(stand_in: StandIn, direction: str, flags: int) -> None:
    with dmabuf.Fd(stand_in.dma_buf()) as fd:
        window = dmabuf.cpu_access(fd, direction)
        assert stand_in.calls == []
        assert window.required is None
        with window as same:
            assert same is window
            assert window.required
            assert stand_in.calls == [("sync", flags)]
        assert stand_in.calls == [("sync", flags), ("sync", flags | END)]
        with window:  # once more
            pass
        assert len(stand_in.calls) == 4


def test_it_ends_when_the_block_raises(stand_in: StandIn) -> None:
    with dmabuf.Fd(stand_in.dma_buf()) as fd:
        with pytest.raises(KeyError), dmabuf.cpu_access(fd, "write"):
            raise KeyError
        assert stand_in.calls == [("sync", WRITE), ("sync", WRITE | END)]


def test_it_ends_when_the_descriptor_is_closed_in_it(stand_in: StandIn) -> None:
    fd = dmabuf.Fd(stand_in.dma_buf())
    with dmabuf.cpu_access(fd, "read"):
        fd.close()
    assert stand_in.calls == [("sync", READ), ("sync", READ | END)]


def test_two_windows_overlap(stand_in: StandIn) -> None:
    with dmabuf.Fd(stand_in.dma_buf()) as fd:
        with (
            dmabuf.cpu_access(fd, "read") as window,
            dmabuf.cpu_access(fd, "write"),
            pytest.raises(ValueError, match="open already"),
        ):
            window.__enter__()
        assert [flags for _, flags in stand_in.calls] == [READ, WRITE, WRITE | END, READ | END]


def test_an_interrupted_or_busy_call_is_made_again(stand_in: StandIn) -> None:
    with dmabuf.Fd(stand_in.dma_buf()) as fd:
        stand_in.fail(SYNC, errno.EINTR, errno.EAGAIN, errno.EINTR)
        with dmabuf.cpu_access(fd, "read"):
            stand_in.fail(SYNC, errno.EAGAIN)
        assert stand_in.calls == [("sync", READ), ("sync", READ | END)]


def test_what_the_kernel_refuses_is_told(stand_in: StandIn) -> None:
    with dmabuf.Fd(stand_in.dma_buf()) as fd:
        stand_in.fail(SYNC, errno.EIO)
        with pytest.raises(OSError, match="Input/output"), dmabuf.cpu_access(fd):
            raise AssertionError("the block must not run")
        assert stand_in.calls == []
        window = dmabuf.cpu_access(fd).__enter__()
        stand_in.fail(SYNC, errno.ENODEV)
        with pytest.raises(OSError, match="No such device"):
            window.__exit__(None, None, None)


def test_no_descriptor_is_free_for_a_window(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_free(fd: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with dmabuf.Fd(stand_in.dma_buf()) as fd:
        monkeypatch.setattr("l0py.dmabuf._kernel.duplicate", none_free)
        with pytest.raises(OSError, match="Too many open files"), dmabuf.cpu_access(fd):
            pass
        assert stand_in.calls == []


def test_a_memfd_and_a_file_need_none(memfd: int, tmp_path: Path) -> None:
    with dmabuf.cpu_access(memfd, "write") as window:
        assert window.required is False
    with (tmp_path / "file").open("wb") as file, dmabuf.cpu_access(file) as window:
        assert window.required is False


def test_a_real_dma_buf_needs_one(dma_buf: dmabuf.Fd) -> None:
    for direction in ("read", "write", "read_write"):
        with dmabuf.cpu_access(dma_buf, direction) as window:
            assert window.required


def test_what_is_no_buffer() -> None:
    reader, writer = os.pipe()
    here, there = socket.socketpair()
    opened: list[Any] = [dmabuf.Fd(fd) for fd in (reader, writer, os.open("/", os.O_RDONLY), os.eventfd(0))]
    opened += [dmabuf.Fd(os.open("/dev/null", os.O_RDWR)), here, there]
    for wrong in opened:
        with pytest.raises(OSError, match="no buffer") as caught, dmabuf.cpu_access(wrong):
            pass
        assert caught.value.errno == errno.EINVAL
        wrong.close()
    with pytest.raises(OSError, match="Bad file descriptor"), dmabuf.cpu_access(-1):
        pass
    with pytest.raises(ValueError, match="'read', 'write' or 'read_write', not for 'rw'"):
        dmabuf.cpu_access(0, "rw")
