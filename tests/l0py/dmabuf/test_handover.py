"""Descriptors from process to process: over sockets, and fetched. The processes are real."""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from l0py import dmabuf
from l0py.dmabuf import _kernel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stand_in import StandIn
    from vgem import Vgem

Pair = tuple[socket.socket, socket.socket]

HEADER = struct.Struct("=8sHHI")


def child(script: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, **options)


# Over a socket ------------------------------------------------------------------------------------------------------


def test_a_descriptor_travels(memfd: int, pair: Pair) -> None:
    here, there = pair
    with dmabuf.Fd.duplicate(memfd) as sent:
        dmabuf.send(here, sent, b"hello")
    message, (got,) = dmabuf.receive(there)
    assert message == b"hello"
    with got:
        status = os.fstat(memfd)
        assert got.identity == (status.st_dev, status.st_ino)
        assert not os.get_inheritable(got.fileno())
        with dmabuf.Fd.duplicate(memfd) as ours, ours.mmap() as one, got.mmap() as other:
            one[0] = 77
            assert other[0] == 77


def test_many_travel_together_and_messages_keep_apart(memfd: int, pair: Pair) -> None:
    here, there = pair
    dmabuf.send(here, [memfd] * 253)
    dmabuf.send(here, [], b"frame 1")
    dmabuf.send(here, memfd, b"x" * 4096)
    dmabuf.send(here, (memfd for _ in range(2)), b"")
    message, fds = dmabuf.receive(there, count=253)
    assert (message, len(fds)) == (b"", 253)
    for fd in fds:
        fd.close()
    assert dmabuf.receive(there) == (b"frame 1", [])
    message, (fd,) = dmabuf.receive(there)
    assert message == b"x" * 4096
    fd.close()
    _, fds = dmabuf.receive(there, count=2)
    assert len(fds) == 2
    for fd in fds:
        fd.close()


def test_a_message_larger_than_the_sockets_buffer(memfd: int) -> None:
    here, there = socket.socketpair()
    size = 3_000_000
    with here, there:
        sender = threading.Thread(target=dmabuf.send, args=(here, [memfd, memfd], bytes(range(250)) * (size // 250)))
        sender.start()
        message, fds = dmabuf.receive(there, 2, size)
        sender.join()
    assert message == bytes(range(250)) * (size // 250)
    for fd in fds:
        fd.close()


def test_kinds_travel(tmp_path: Path, pair: Pair) -> None:
    here, there = pair
    (tmp_path / "file").write_bytes(b"abc")
    reader, writer = os.pipe()
    opened = [dmabuf.Fd(fd) for fd in (os.open(tmp_path / "file", os.O_RDONLY), os.memfd_create("a"), reader, writer)]
    dmabuf.send(here, opened)
    _, fds = dmabuf.receive(there, 4)
    assert [(fd.kind, fd.size) for fd in fds] == [(fd.kind, fd.size) for fd in opened]
    for fd in opened + fds:
        fd.close()


def test_real_dma_bufs_travel(dma_buf: dmabuf.Fd, pair: Pair) -> None:
    here, there = pair
    dmabuf.send(here, dma_buf)
    _, (got,) = dmabuf.receive(there)
    with got, got.mmap() as mapped, dma_buf.mmap() as ours:
        assert (got.kind, got.size, got.identity) == ("dma_buf", 8192, dma_buf.identity)
        mapped[9] = 9
        assert ours[9] == 9


def test_real_sync_files_travel(vgem: Vgem, pair: Pair) -> None:
    here, there = pair
    handle, buffer = vgem.buffer()
    with buffer:
        fence = vgem.use(handle, write=True)
        with dmabuf.export_sync_file(buffer) as sync_file:
            dmabuf.send(here, sync_file)
    _, (got,) = dmabuf.receive(there)
    with got:
        assert isinstance(got, dmabuf.SyncFile)
        assert not got.signalled
        vgem.signal(fence)
        assert got.wait(5)


def test_a_sync_file_arrives_as_one(stand_in: StandIn, pair: Pair) -> None:
    here, there = pair
    with dmabuf.SyncFile(stand_in.sync_file(signalled=True)) as sync_file:
        dmabuf.send(here, sync_file)
        _, (got,) = dmabuf.receive(there)
        with got:
            assert isinstance(got, dmabuf.SyncFile)
            assert got.signalled


def test_the_end(pair: Pair) -> None:
    here, there = pair
    here.close()
    assert dmabuf.receive(there) == (b"", [])
    assert dmabuf.receive(there, raw=True) == (b"", [])


def test_raw_is_for_those_who_know_nothing_of_l0py(memfd: int, pair: Pair) -> None:
    here, there = pair
    socket.send_fds(here, [b"theirs"], [memfd])
    message, (fd,) = dmabuf.receive(there, raw=True)
    assert message == b"theirs"
    assert not os.get_inheritable(fd.fileno())
    fd.close()
    dmabuf.send(here, memfd, b"ours", raw=True)
    message, numbers, _, _ = socket.recv_fds(there, 100, 1)
    assert message == b"ours"
    os.close(numbers[0])
    here.send(b"plain")
    assert dmabuf.receive(there, raw=True) == (b"plain", [])


@pytest.mark.parametrize("message", [b"theirs", b"l", b"l0py-fdx and more than a header", bytes(100)])
def test_what_send_did_not_write_is_refused(memfd: int, pair: Pair, message: bytes) -> None:
    here, there = pair
    socket.send_fds(here, [message], [memfd])
    if there.type == socket.SOCK_STREAM and message == b"l":
        here.close()
        with pytest.raises(ConnectionResetError, match="in the middle"):
            dmabuf.receive(there)
        return
    with pytest.raises(ValueError, match=r"no message of send|less than its header"):
        dmabuf.receive(there)


def lies(memfd: int) -> Iterator[tuple[bytes, int, str]]:
    """Messages, how many descriptors go with them, and what is said about them."""
    status = os.fstat(memfd)
    true = 2, 8192, status.st_dev, status.st_ino

    def record(*fields: int) -> bytes:
        return struct.pack("=QQQQ", *fields)

    def header(count: int = 1, length: int = 0, version: int = 1) -> bytes:
        return HEADER.pack(b"l0py-fds", version, count, length)

    yield header() + record(2, 4096, *true[2:]), 1, "memfd of 8192 bytes arrived, its sender described 4096"
    yield header() + record(1, *true[1:]), 1, r"its sender described 8192 \(dma_buf\)"
    yield header() + record(*true[:3], true[3] + 1), 1, "another memfd arrived"
    yield header() + record(*true[:2], true[2] + 1, true[3]), 1, "descriptor 0: another memfd arrived"
    yield header() + record(6, *true[1:]), 1, "calls it kind 6"
    yield header(2) + record(*true) * 2, 1, "1 descriptors arrived, their sender announced 2"
    yield header(1) + record(*true), 2, "2 descriptors arrived, their sender announced 1"
    yield header(1) + record(*true), 3, "descriptors arrived, their sender announced 1"  # not all of them have room
    yield header(0), 1, "1 descriptors arrived, their sender announced 0"
    yield header(version=2) + record(*true), 1, "version 2 of the header, this l0py reads 1"
    yield header(count=9) + record(*true) * 9, 9, "more arrived"
    yield header(length=5000) + record(*true) + bytes(5000), 1, "more arrived"


@pytest.mark.parametrize("case", range(12))
def test_a_sender_that_lies(memfd: int, pair: Pair, case: int) -> None:
    here, there = pair
    message, count, text = list(lies(memfd))[case]
    socket.send_fds(here, [message], [memfd] * count)
    with pytest.raises(ValueError, match=text):
        dmabuf.receive(there, count=2)


def test_packets_that_are_longer_or_shorter_than_they_say(memfd: int) -> None:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    status = os.fstat(memfd)
    record = struct.pack("=QQQQ", 2, 8192, status.st_dev, status.st_ino)
    with here, there:
        for length, text in ((3, "52 bytes arrived, their sender announced 51"), (5, "52 bytes")):
            socket.send_fds(here, [HEADER.pack(b"l0py-fds", 1, 1, length) + record + b"four"], [memfd])
            with pytest.raises(ValueError, match=text):
                dmabuf.receive(there)


def test_truncated_between_sending_and_receiving(memfd: int, pair: Pair) -> None:
    here, there = pair
    dmabuf.send(here, memfd)
    os.ftruncate(memfd, 4096)
    with pytest.raises(ValueError, match="of 4096 bytes arrived, its sender described 8192"):
        dmabuf.receive(there)


@pytest.mark.parametrize("raw", [False, True])
def test_more_than_asked_for_is_refused(memfd: int, pair: Pair, raw: bool) -> None:
    here, there = pair
    dmabuf.send(here, [memfd] * 20, b"a", raw=raw)
    with pytest.raises(ValueError, match="more arrived"):
        dmabuf.receive(there, count=1, raw=raw)


@pytest.mark.parametrize("raw", [False, True])
def test_a_message_cut_short_is_refused(memfd: int, raw: bool) -> None:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with here, there:
        dmabuf.send(here, memfd, b"0123456789", raw=raw)
        with pytest.raises(ValueError, match="more arrived"):
            dmabuf.receive(there, size=4, raw=raw)


@pytest.mark.parametrize("raw", [False, True])
def test_no_descriptor_is_free_at_the_receiver(memfd: int, pair: Pair, raw: bool) -> None:
    here, there = pair
    dmabuf.send(here, [memfd] * 5, b"a", raw=raw)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 2, hard))
    try:
        with pytest.raises(OSError, match="no more free ones") as caught:
            dmabuf.receive(there, 5, raw=raw)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert caught.value.errno == errno.EMFILE


def test_what_cannot_be_sent(memfd: int, pair: Pair) -> None:
    here, _ = pair
    with pytest.raises(ValueError, match="at least one byte"):
        dmabuf.send(here, memfd, b"", raw=True)
    with pytest.raises(ValueError, match="1 to 253"):
        dmabuf.send(here, [], b"a", raw=True)
    with pytest.raises(ValueError, match="nothing to send"):
        dmabuf.send(here)
    for raw in (False, True):
        with pytest.raises(ValueError, match="1 to 253"):
            dmabuf.send(here, [memfd] * 254, b"a", raw=raw)
        closed = dmabuf.Fd.duplicate(memfd)
        closed.close()
        with pytest.raises(ValueError, match="closed"):
            dmabuf.send(here, closed, b"a", raw=raw)
        for wrong, number in ((1 << 20, 1 << 20), (-1, -1), ([memfd, -1], -1)):
            with pytest.raises(OSError, match=f"Bad file descriptor: {number}$"):
                dmabuf.send(here, wrong, b"a", raw=raw)
        with pytest.raises(TypeError, match="message must be bytes"):
            dmabuf.send(here, memfd, "text", raw=raw)  # type: ignore[arg-type]
        for nothing in ("3", None, [None]):
            with pytest.raises(TypeError):
                dmabuf.send(here, nothing, b"a", raw=raw)  # type: ignore[arg-type]
    for count, size in ((-1, 0), (254, 0), (1, -1)):
        with pytest.raises(ValueError, match="can be received"):
            dmabuf.receive(here, count, size)


def test_only_unix_sockets_carry_descriptors(memfd: int) -> None:
    with socket.socket(socket.AF_INET) as wrong:
        with pytest.raises(ValueError, match="Unix sockets alone"):
            dmabuf.send(wrong, memfd)
        with pytest.raises(ValueError, match="Unix sockets alone"):
            dmabuf.receive(wrong)


def test_nobody_is_at_the_other_end(memfd: int, pair: Pair) -> None:
    here, there = pair
    there.close()
    with pytest.raises(BrokenPipeError):
        dmabuf.send(here, memfd)


def test_a_socket_with_a_timeout(memfd: int, pair: Pair) -> None:
    here, there = pair
    there.settimeout(0.01)
    with pytest.raises(TimeoutError):
        dmabuf.receive(there)
    there.setblocking(False)
    with pytest.raises(BlockingIOError):
        dmabuf.receive(there)
    dmabuf.send(here, memfd)
    _, (fd,) = dmabuf.receive(there)
    fd.close()


def test_what_arrived_does_not_pass_to_programs_that_are_started(memfd: int, pair: Pair) -> None:
    """A program is executed by a process that keeps all of its descriptors open, and lists what it got."""
    here, there = pair
    dmabuf.send(here, [memfd] * 3)
    _, fds = dmabuf.receive(there, 3)
    inherited = os.dup(memfd)
    os.set_inheritable(inherited, True)
    command = ["ls", "-l", "/proc/self/fd"]
    listed = subprocess.run(command, close_fds=False, capture_output=True, text=True, check=True)
    assert listed.stdout.count("/memfd:test") == 1, "the one that was made inheritable, so that the list is one"
    os.close(inherited)
    for fd in fds:
        fd.close()


SENDER = """
import os, signal, socket, struct, sys
from l0py import dmabuf
connection = socket.socket(fileno=int(sys.argv[1]))
memory = dmabuf.memfd(8192, "sent")
memory.mmap()[:5] = b"hello"
if sys.argv[2] == "whole":
    dmabuf.send(connection, memory, b"frame")
else:
    status = os.fstat(memory.fileno())
    record = struct.pack("=QQQQ", 2, 8192, status.st_dev, status.st_ino)
    whole = struct.pack("=8sHHI", b"l0py-fds", 1, 1, 100) + record + bytes(100)
    socket.send_fds(connection, [whole[: int(sys.argv[2])]], [memory.fileno()])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_buffer_outlives_its_sender() -> None:
    here, there = socket.socketpair()
    with here:
        with there:
            process = child(SENDER, str(there.fileno()), "whole", pass_fds=[there.fileno()])
        message, (fd,) = dmabuf.receive(here)
        process.communicate(timeout=30)
        assert process.returncode == -signal.SIGKILL
        with fd, fd.mmap() as mapped:
            assert (message, fd.name, mapped[:5]) == (b"frame", "sent", b"hello")
        assert dmabuf.receive(here) == (b"", [])


@pytest.mark.parametrize("bytes_sent", ["1", "15", "16", "47", "48", "147"])
def test_the_sender_is_killed_in_the_middle(bytes_sent: str) -> None:
    here, there = socket.socketpair()
    with here:
        with there:
            process = child(SENDER, str(there.fileno()), bytes_sent, pass_fds=[there.fileno()])
        with pytest.raises(ConnectionResetError, match="in the middle of a message"):
            dmabuf.receive(here)
        process.communicate(timeout=30)


# Fetched ------------------------------------------------------------------------------------------------------------

HOLDER = """
import os, sys
from l0py import dmabuf
memory = dmabuf.memfd(8192, "held")
dmabuf.allow_fetch()
if len(sys.argv) > 1:
    os.setresuid(*[int(sys.argv[1])] * 3)
print(memory.fileno(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder() -> Iterator[tuple[int, int]]:
    """Another process's id, and its descriptor."""
    process = child(HOLDER)
    assert process.stdout is not None
    yield process.pid, int(process.stdout.readline())
    process.communicate(timeout=30)


def test_a_descriptor_is_fetched(holder: tuple[int, int]) -> None:
    pid, number = holder
    with dmabuf.fetch(pid, number) as fd:
        assert (fd.kind, fd.size, fd.name) == ("memfd", 8192, "held")
        assert not os.get_inheritable(fd.fileno())
        status = Path(f"/proc/{pid}/fd/{number}").stat()
        assert fd.identity == (status.st_dev, status.st_ino)


def test_what_cannot_be_fetched(holder: tuple[int, int]) -> None:
    pid, _ = holder
    for wrong, text in ((1000, f"process {pid} has no"), (-1, "no process has a"), (1 << 32, "no process has a")):
        with pytest.raises(OSError, match=f"{text} file descriptor {wrong}") as caught:
            dmabuf.fetch(pid, wrong)
        assert caught.value.errno == errno.EBADF
    gone = child("")
    gone.communicate(timeout=30)
    for none in (gone.pid, 0, -1, 1 << 22, pid + (1 << 32)):
        with pytest.raises(ProcessLookupError, match=f"there is no process {none}"):
            dmabuf.fetch(none, 0)


def test_another_users_process_is_not_open_to_everybody(tmp_path: Path) -> None:
    """The one that asks has given up its rights."""
    if os.geteuid() == 0:
        script = "import ctypes, os, sys; from l0py import dmabuf; os.setresuid(65534, 65534, 65534)"
        pid = os.getpid()
    else:
        script, pid = "import os, sys; from l0py import dmabuf", 1
    script += """
try:
    dmabuf.fetch(int(sys.argv[1]), 0)
except PermissionError as error:
    print(error)
"""
    asked = child(script, str(pid))
    answer, _ = asked.communicate(timeout=30)
    assert f"may not trace process {pid}, so it gets no descriptor: " in answer


@pytest.mark.parametrize(
    ("scope", "text"),
    [("0", "another user"), ("1", r"allow_fetch\(\d+\)"), ("2", "only root"), ("3", "nobody")],
)
def test_yama_is_named_where_it_restricts(
    scope: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holder: tuple[int, int]
) -> None:
    """The refusal is injected: no Yama here would give it."""
    (tmp_path / "scope").write_text(f"{scope}\n")
    monkeypatch.setattr("l0py.dmabuf.handover._YAMA", str(tmp_path / "scope"))
    real = _kernel.syscall

    def syscall(number: int, *arguments: int) -> int:
        if number == 438:
            raise OSError(code, os.strerror(code))
        return real(number, *arguments)

    monkeypatch.setattr(_kernel, "syscall", syscall)
    code = errno.EPERM
    with pytest.raises(PermissionError, match=text):
        dmabuf.fetch(*holder)
    for code, match in ((errno.ESRCH, "just ended"), (errno.ENOSYS, r"Linux 5\.6"), (errno.EMFILE, "Too many open")):
        with pytest.raises(OSError, match=match) as caught:
            dmabuf.fetch(*holder)
        assert caught.value.errno == code


def test_fetching_is_allowed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert dmabuf.allow_fetch() is Path("/proc/sys/kernel/yama/ptrace_scope").exists()
    (tmp_path / "scope").write_text("1\n")
    monkeypatch.setattr("l0py.dmabuf.handover._YAMA", str(tmp_path / "scope"))
    asked = []
    monkeypatch.setattr(_kernel, "prctl", lambda *arguments: asked.append(arguments))
    assert dmabuf.allow_fetch()
    assert dmabuf.allow_fetch(77)
    assert asked == [(0x59616D61, (1 << 64) - 1), (0x59616D61, 77)]
    for wrong in (0, -1, 1 << 40):
        with pytest.raises(ValueError, match="is no process's id"):
            dmabuf.allow_fetch(wrong)
