"""A descriptor that is owned, and what it is."""

from __future__ import annotations

import copy
import errno
import fcntl
import gc
import mmap
import os
import pickle
import resource
import socket
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

from l0py import dmabuf

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stand_in import StandIn
    from vgem import Vgem


@pytest.fixture
def full() -> Iterator[None]:
    """No descriptor is free."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_an_owned_descriptor(memfd: int) -> None:
    with dmabuf.Fd.duplicate(memfd) as fd:
        assert fd.size == 8192
        status = os.fstat(memfd)
        assert fd.identity == (status.st_dev, status.st_ino)
        assert not os.get_inheritable(fd.fileno())
        assert repr(fd) == f"<l0py.dmabuf.Fd {fd.fileno()}, 8192 bytes>"
    assert fd.closed
    assert repr(fd) == "<l0py.dmabuf.Fd (closed)>"
    reads, writes = map(dmabuf.Fd, os.pipe())
    with reads, writes:
        assert repr(reads) == f"<l0py.dmabuf.Fd {reads.fileno()}, other, no bytes>"
    fd.close()
    uses = (
        fd.fileno,
        fd.detach,
        fd.__enter__,
        fd.mmap,
        lambda: fd.size,
        lambda: fd.identity,
        lambda: fd.kind,
        lambda: fd.name,
        lambda: fd.seals,
        lambda: fd.add_seals("grow"),
        lambda: setattr(fd, "name", "a"),
        lambda: dmabuf.kind_of(fd),
        lambda: dmabuf.Fd.duplicate(fd),
    )
    for use in uses:
        with pytest.raises(ValueError, match="closed"):
            use()


def test_the_collector_closes(memfd: int) -> None:
    dmabuf.Fd.duplicate(memfd)
    gc.collect()


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


@pytest.mark.parametrize("number", [1 << 20, -1, -(1 << 40), 1 << 40])
def test_what_is_not_open(number: int) -> None:
    for use in (dmabuf.Fd, dmabuf.Fd.duplicate, dmabuf.kind_of, dmabuf.SyncFile):
        with pytest.raises(OSError, match="Bad file descriptor") as caught:
            use(number)
        assert caught.value.errno == errno.EBADF


@pytest.mark.parametrize("wrong", [None, "3", 3.0, True, b"", []])
def test_what_is_no_descriptor_at_all(wrong: Any) -> None:
    for use in (dmabuf.Fd, dmabuf.Fd.duplicate, dmabuf.kind_of, dmabuf.SyncFile):
        with pytest.raises(TypeError, match=r"is an int or has fileno|takes over a number"):
            use(wrong)


def test_what_somebody_else_closes_is_not_taken_over(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file, pytest.raises(TypeError, match=r"see Fd\.duplicate"):
        dmabuf.Fd(file)  # type: ignore[arg-type]


def test_anything_with_a_descriptor_can_be_duplicated(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    with (tmp_path / "file").open("rb") as file, dmabuf.Fd.duplicate(file) as fd:
        assert (fd.size, fd.identity[1]) == (3, (tmp_path / "file").stat().st_ino)


def test_closed_by_its_number_behind_its_back(memfd: int) -> None:
    fd = dmabuf.Fd.duplicate(memfd)
    os.close(fd.fileno())
    assert repr(fd) == f"<l0py.dmabuf.Fd {fd.fileno()}, not open>"
    for use in (lambda: fd.size, lambda: fd.identity, lambda: fd.kind, lambda: fd.name, fd.mmap, fd.close):
        with pytest.raises(OSError, match="Bad file descriptor"):
            use()
    assert fd.closed


def test_the_size_of_what_is_no_buffer_and_its_offset_stay(memfd: int) -> None:
    reader, writer = os.pipe()
    with dmabuf.Fd(reader), dmabuf.Fd(writer) as end:
        assert end.size == 0
    os.lseek(memfd, 100, os.SEEK_SET)
    assert dmabuf.buffer_size(memfd) == 8192
    assert os.lseek(memfd, 0, os.SEEK_CUR) == 100


def test_no_descriptor_is_free(memfd: int, full: None) -> None:
    for use in (lambda: dmabuf.Fd.duplicate(memfd), lambda: dmabuf.memfd(4096), lambda: dmabuf.fetch(os.getpid(), 0)):
        with pytest.raises(OSError, match="Too many open files"):
            use()


def test_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a")
    kinds: list[tuple[int, str]] = []
    reader, writer = os.pipe()
    one, other = (end.detach() for end in socket.socketpair())
    with tempfile.TemporaryDirectory(dir="/dev/shm") as shared:
        kinds += [(reader, "other"), (writer, "other"), (one, "other"), (other, "other")]
        kinds += [(os.open("/", os.O_RDONLY), "other"), (os.open("/dev/zero", os.O_RDWR), "other")]
        kinds += [(os.eventfd(0), "other")]
        kinds += [(os.memfd_create("m"), "memfd"), (os.memfd_create("m", os.MFD_ALLOW_SEALING), "memfd")]
        kinds += [(os.open(f"{shared}/a", os.O_CREAT | os.O_RDWR), "shm")]
        on_disk = os.open("/etc/passwd" if _is_tmpfs(tmp_path) else tmp_path / "file", os.O_RDONLY)
        kinds += [(on_disk, "file")]
        assert [dmabuf.kind_of(fd) for fd, _ in kinds] == [kind for _, kind in kinds]
    for fd, _ in kinds:
        os.close(fd)


def _is_tmpfs(path: Path) -> bool:
    with tempfile.TemporaryFile(dir=path) as file:
        try:
            fcntl.fcntl(file, fcntl.F_GET_SEALS)
        except OSError:
            return False
    return True


def test_a_name_deceives_nobody(tmp_path: Path) -> None:
    """Files may be called as /proc calls others."""
    for name in ("dmabuf:", "memfd:x (deleted)", "anon_inode:sync_file"):
        with dmabuf.Fd(os.open(tmp_path / name, os.O_CREAT | os.O_RDWR)) as fd:
            assert fd.kind == ("shm" if _is_tmpfs(tmp_path) else "file")
            assert fd.name == ""


def test_a_real_dma_buf(dma_buf: dmabuf.Fd) -> None:
    assert (dma_buf.kind, dma_buf.size, dma_buf.name) == ("dma_buf", 8192, "")
    assert not os.get_inheritable(dma_buf.fileno())
    assert dma_buf.seals == frozenset()
    dma_buf.name = "frame 1"
    with dmabuf.Fd.duplicate(dma_buf) as other:
        assert other.name == "frame 1"
        assert other.identity == dma_buf.identity
    dma_buf.name = "x" * 31
    assert dma_buf.name == "x" * 31
    with dmabuf.cpu_access(dma_buf, "write"), dma_buf.mmap() as mapped:
        mapped[5000:5003] = b"abc"
    with dmabuf.cpu_access(dma_buf, "read"), dma_buf.mmap(4096, 4096, "read") as mapped:
        assert mapped[904:907] == b"abc"
    with pytest.raises(OSError, match="only a memfd"):
        dma_buf.add_seals("grow")


def test_two_real_dma_bufs_are_two(dma_buf: dmabuf.Fd, vgem: Vgem) -> None:
    _, other = vgem.buffer()
    with other:
        assert other.kind == "dma_buf"
        assert other.identity != dma_buf.identity


def test_a_name_is_set(stand_in: StandIn) -> None:
    with dmabuf.Fd(stand_in.dma_buf()) as fd:
        assert fd.kind == "dma_buf"
        fd.name = "frame 1"
        assert stand_in.names[fd.identity] == b"frame 1\0"
        for wrong in ("x" * 32, "a\0b", "\u00e4" * 16):
            with pytest.raises(ValueError, match="31 bytes"):
                fd.name = wrong


def test_only_a_dma_buf_can_be_named(memfd: int) -> None:
    with dmabuf.Fd.duplicate(memfd) as fd:
        assert fd.name == "test"
        with pytest.raises(OSError, match="only a dma-buf can") as caught:
            fd.name = "other"
        assert caught.value.errno == errno.ENOTTY
        assert fd.name == "test"


def test_seals() -> None:
    with dmabuf.memfd(4096) as fd:
        assert fd.seals == {"shrink", "grow"}
        for size in (0, 8192):
            with pytest.raises(PermissionError):
                os.ftruncate(fd.fileno(), size)
        with fd.mmap(), pytest.raises(OSError, match="mapped writable"):
            fd.add_seals("write")
        fd.add_seals("seal")
        with pytest.raises(PermissionError, match="sealed against more"):
            fd.add_seals("write")
        with pytest.raises(ValueError, match="no such seal: 'shut'"):
            fd.add_seals("shut")
    reader, writer = os.pipe()
    with dmabuf.Fd(reader), dmabuf.Fd(writer) as end:
        assert end.seals == frozenset()
        with pytest.raises(OSError, match="only a memfd"):
            end.add_seals("grow")


def test_it_is_mapped(memfd: int) -> None:
    with dmabuf.Fd.duplicate(memfd) as fd:
        whole = fd.mmap()
        with fd.mmap(4096, offset=4096) as second, fd.mmap(100, access="read") as start:
            whole[4096] = 7
            assert second[0] == 7
            assert (len(second), len(start)) == (4096, 100)
            with pytest.raises(TypeError):
                start[0] = 1
            second[1] = 8
    with whole:  # it outlives the descriptor
        assert whole[4096:4098] == b"\7\x08"


def test_what_cannot_be_mapped(memfd: int) -> None:
    with dmabuf.Fd.duplicate(memfd) as fd:
        for size, offset in ((8193, 0), (0, 0), (-1, 0), (None, 8192), (4097, 4096), (None, 1 << 40)):
            with pytest.raises(ValueError, match="cannot be mapped"):
                fd.mmap(size, offset)
        for offset in (-4096, 1, 4095):
            with pytest.raises(ValueError, match="multiple of the page size"):
                fd.mmap(offset=offset)
        with pytest.raises(ValueError, match="'read' or 'read_write'"):
            fd.mmap(access="write")
        os.ftruncate(memfd, 0)
        with pytest.raises(ValueError, match="has 0"):
            fd.mmap(8192)
    with dmabuf.Fd(os.open("/", os.O_RDONLY)) as directory, pytest.raises((OSError, ValueError)):
        directory.mmap()


def test_what_was_opened_for_reading_cannot_be_mapped_for_writing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(4096))
    with dmabuf.Fd(os.open(tmp_path / "file", os.O_RDONLY)) as fd:
        with pytest.raises(PermissionError):
            fd.mmap()
        with fd.mmap(access="read") as mapped:
            assert mapped[0] == 0


def test_a_mapping_serves_numpy(memfd: int) -> None:
    np = pytest.importorskip("numpy")
    with dmabuf.Fd.duplicate(memfd) as fd, fd.mmap() as mapped, mmap.mmap(memfd, 8192) as other:
        array = np.frombuffer(mapped, np.uint8)
        array[10] = 3
        assert other[10] == 3
        with pytest.raises(BufferError):
            mapped.close()
        del array


def test_it_needs_no_driver_and_no_loader(python: Any) -> None:
    script = """
from l0py import dmabuf, loader
with dmabuf.memfd(10) as owned:
    assert owned.size == 10
assert loader._bound is None
"""
    done = python(script, L0PY_LOADER="/nonexistent")
    assert (done.returncode, done.stderr) == (0, "")


def test_without_linux_it_says_so(python: Any) -> None:
    """As on Windows: the modules that it lacks are not there to be imported."""
    script = """
import importlib.util, os, sys
from pathlib import Path
directory = Path(sys.argv[1])
sys.platform = "win32"
for name in ("fcntl", "resource"):
    sys.modules[name] = None
spec = importlib.util.spec_from_file_location(
    "dmabuf", directory / "__init__.py", submodule_search_locations=[str(directory)]
)
dmabuf = importlib.util.module_from_spec(spec)
sys.modules["dmabuf"] = dmabuf
spec.loader.exec_module(dmabuf)
import socket
here, there = socket.socketpair()
uses = [
    lambda: dmabuf.Fd(0), lambda: dmabuf.Fd.duplicate(0), lambda: dmabuf.kind_of(0), lambda: dmabuf.SyncFile(0),
    lambda: dmabuf.memfd(1), lambda: dmabuf.allocate(1), lambda: dmabuf.from_memfd(0), lambda: dmabuf.create_udmabuf(1),
    lambda: dmabuf.cpu_access(0).__enter__(), lambda: dmabuf.export_sync_file(0), lambda: dmabuf.merge("a", 0, 0),
    lambda: dmabuf.import_sync_file(0, 0), lambda: dmabuf.fetch(1, 0), lambda: dmabuf.allow_fetch(),
    lambda: dmabuf.send(here, 0), lambda: dmabuf.receive(there),
]
for number, use in enumerate(uses):
    try:
        use()
    except OSError as error:
        assert "Linux" in str(error), (number, error)
    else:
        raise AssertionError(number)
"""
    done = python(script, dmabuf.__path__[0])
    assert (done.returncode, done.stderr) == (0, "")
