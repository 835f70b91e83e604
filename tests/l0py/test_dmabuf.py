from __future__ import annotations

import copy
import fcntl
import gc
import mmap
import os
import pickle
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from l0py import dmabuf

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    with here, there:
        yield here, there


def open_fds() -> int:
    gc.collect()
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_an_owned_descriptor(memfd: int) -> None:
    before = open_fds()
    with dmabuf.Fd.duplicate(memfd) as fd:
        assert fd.size == 8192
        status = os.fstat(memfd)
        assert fd.identity == (status.st_dev, status.st_ino)
        assert not os.get_inheritable(fd.fileno())
        assert repr(fd) == f"<l0py.dmabuf.Fd {fd.fileno()}, 8192 bytes>"
    assert fd.closed
    assert repr(fd) == "<l0py.dmabuf.Fd (closed)>"
    fd.close()
    for use in (fd.fileno, fd.detach, fd.__enter__, lambda: fd.size, lambda: fd.identity):
        with pytest.raises(ValueError, match="closed"):
            use()
    assert open_fds() == before


def test_the_collector_closes(memfd: int) -> None:
    before = open_fds()
    dmabuf.Fd.duplicate(memfd)
    assert open_fds() == before


@pytest.mark.parametrize("duplicated", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_copy_of_the_object_would_close_it_twice(memfd: int, duplicated: Any) -> None:
    with dmabuf.Fd.duplicate(memfd) as fd, pytest.raises(TypeError, match="cannot be copied"):
        duplicated(fd)


def test_detach_hands_over(memfd: int) -> None:
    fd = dmabuf.Fd.duplicate(memfd)
    number = fd.detach()
    assert fd.closed
    del fd
    gc.collect()
    assert is_open(number)
    os.close(number)


def test_taking_over_makes_it_close_on_exec(memfd: int) -> None:
    number = fcntl.fcntl(memfd, fcntl.F_DUPFD, 0)
    assert os.get_inheritable(number)
    with dmabuf.Fd(number):
        assert not os.get_inheritable(number)


def test_what_is_not_open() -> None:
    for make in (dmabuf.Fd, dmabuf.Fd.duplicate):
        with pytest.raises(OSError, match="Bad file descriptor"):
            make(1 << 20)
    with pytest.raises(OSError, match="Bad file descriptor"):
        dmabuf.Fd(-1)


def test_the_size_of_what_is_no_buffer_and_its_offset_stay(memfd: int) -> None:
    reader, writer = os.pipe()
    with dmabuf.Fd(reader), dmabuf.Fd(writer) as end:
        assert end.size == 0
    os.lseek(memfd, 100, os.SEEK_SET)
    assert dmabuf.buffer_size(memfd) == 8192
    assert os.lseek(memfd, 0, os.SEEK_CUR) == 100


def test_a_descriptor_travels(memfd: int, pair: Any) -> None:
    here, there = pair
    before = open_fds()
    with dmabuf.Fd.duplicate(memfd) as sent:
        dmabuf.send(here, sent, b"hello")
    message, (got,) = dmabuf.receive(there)
    assert message == b"hello"
    status = os.fstat(memfd)
    assert got.identity == (status.st_dev, status.st_ino)
    assert not os.get_inheritable(got.fileno())
    with mmap.mmap(memfd, 8192) as one, mmap.mmap(got.fileno(), got.size) as other:
        one[0] = 77
        assert other[0] == 77
    got.close()
    assert open_fds() == before


def test_several_travel_together(memfd: int, pair: Any) -> None:
    here, there = pair
    dmabuf.send(here, [memfd, memfd, memfd])
    message, fds = dmabuf.receive(there, count=3)
    assert message == b"\0"
    assert len(fds) == 3
    for fd in fds:
        fd.close()


def test_more_than_asked_for_is_refused_and_nothing_leaks(memfd: int, pair: Any) -> None:
    here, there = pair
    before = open_fds()
    dmabuf.send(here, [memfd] * 20)
    with pytest.raises(ValueError, match="more arrived"):
        dmabuf.receive(there, count=1)
    assert open_fds() == before


def test_a_message_cut_short_is_refused(memfd: int) -> None:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with here, there:
        before = open_fds()
        dmabuf.send(here, memfd, b"0123456789")
        with pytest.raises(ValueError, match="more arrived"):
            dmabuf.receive(there, size=4)
        assert open_fds() == before


def test_a_message_without_descriptors_and_the_end(pair: Any) -> None:
    here, there = pair
    here.send(b"plain")
    assert dmabuf.receive(there) == (b"plain", [])
    here.close()
    assert dmabuf.receive(there) == (b"", [])


def test_what_cannot_be_sent(memfd: int, pair: Any) -> None:
    here, _ = pair
    with pytest.raises(ValueError, match="at least one byte"):
        dmabuf.send(here, memfd, b"")
    for wrong in ([], [memfd] * 254):
        with pytest.raises(ValueError, match="1 to 253"):
            dmabuf.send(here, wrong)
    closed = dmabuf.Fd.duplicate(memfd)
    closed.close()
    with pytest.raises(ValueError, match="closed"):
        dmabuf.send(here, closed)
    with pytest.raises(OSError, match="Bad file descriptor"):
        dmabuf.send(here, 1 << 20)


def test_it_needs_no_driver_and_no_loader(python: Any) -> None:
    script = """
import os
from l0py import dmabuf, loader
fd = os.memfd_create("x")
os.ftruncate(fd, 10)
with dmabuf.Fd(fd) as owned:
    assert owned.size == 10
assert loader._bound is None
"""
    done = python(script, L0PY_LOADER="/nonexistent")
    assert (done.returncode, done.stderr) == (0, "")
