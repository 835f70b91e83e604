"""Descriptors as arguments of processes, through queues, pipes and pools, with each way to start a process."""

from __future__ import annotations

import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import resource_sharer
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from l0py import dmabuf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vgem import Vgem

# From Python 3.12 on; what is forked here only maps memory.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

METHODS = ("fork", "spawn", "forkserver")


@pytest.fixture(scope="module", autouse=True)
def helpers_run() -> Iterator[None]:
    """What multiprocessing starts once and keeps: its tracker, its fork server, its sharer of descriptors."""
    for method in ("spawn", "forkserver"):
        process = multiprocessing.get_context(method).Process(target=os.getpid)
        process.start()
        process.join()
        process.close()
    here, there = multiprocessing.Pipe()
    with here, there, dmabuf.memfd(10) as fd:
        here.send(fd)
        there.recv().close()
    yield
    resource_sharer.stop(timeout=5)


def fill(fd: dmabuf.Fd, value: int) -> None:
    with fd, fd.mmap() as mapped:
        mapped[0] = value


def inspect(fd: dmabuf.Fd, answers: Any) -> None:
    answers.send((fd.kind, fd.size, fd.identity, os.get_inheritable(fd.fileno()), type(fd).__name__))


def take_one(queue: Any, value: int) -> None:
    fill(queue.get(timeout=30), value)


def give_back(fd: dmabuf.Fd) -> dmabuf.Fd:
    with fd, fd.mmap() as mapped:
        mapped[0] += 1
        return dmabuf.Fd.duplicate(fd)


def run(method: str, target: Callable[..., None], *arguments: Any) -> None:
    process = multiprocessing.get_context(method).Process(target=target, args=arguments)
    process.start()
    process.join(60)
    assert process.exitcode == 0
    process.close()


@pytest.mark.parametrize("method", METHODS)
def test_it_is_an_argument_of_a_process(method: str) -> None:
    with dmabuf.memfd(4096) as fd, fd.mmap() as mapped:
        run(method, fill, fd, 5)
        assert mapped[0] == 5
        here, there = multiprocessing.Pipe()
        with here, there:
            run(method, inspect, fd, there)
            assert here.recv() == ("memfd", 4096, fd.identity, False, "Fd")


@pytest.mark.parametrize("method", METHODS)
def test_it_goes_through_a_queue(method: str) -> None:
    queue = multiprocessing.get_context(method).Queue()
    with dmabuf.memfd(4096) as fd, fd.mmap() as mapped:
        process = multiprocessing.get_context(method).Process(target=take_one, args=(queue, 6))
        process.start()  # before the queue has a thread: a fork beside one may hang
        queue.put(fd)
        process.join(60)
        assert (process.exitcode, mapped[0]) == (0, 6)
        process.close()
    queue.close()
    queue.join_thread()
    queue._reader.close()  # type: ignore[attr-defined]


def test_it_goes_through_a_pool_and_comes_back() -> None:
    with dmabuf.memfd(4096) as fd, fd.mmap() as mapped:
        with (
            ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool,
            pool.submit(give_back, fd).result() as got,
        ):
            assert got.identity == fd.identity
        assert mapped[0] == 1


def test_a_real_sync_file_is_one_in_another_process(vgem: Vgem) -> None:
    _, buffer = vgem.buffer()
    with buffer, dmabuf.export_sync_file(buffer) as sync_file:
        here, there = multiprocessing.Pipe()
        with here, there:
            run("spawn", inspect, sync_file, there)
            assert here.recv()[0] == "sync_file"


def test_what_changed_on_the_way_is_refused(memfd: int) -> None:
    here, there = multiprocessing.Pipe()
    with here, there, dmabuf.Fd.duplicate(memfd) as fd:
        here.send(fd)
        os.ftruncate(memfd, 100)
        with pytest.raises(ValueError, match="of 100 bytes arrived, its sender described 8192"):
            there.recv()
        closed = dmabuf.Fd.duplicate(fd)
        closed.close()
        with pytest.raises(ValueError, match="closed"):
            here.send(closed)


def test_what_is_never_taken_is_let_go_with_the_sharer(python: Any) -> None:
    script = """
import multiprocessing, os
from multiprocessing import resource_sharer
from l0py import dmabuf

def held():
    with os.scandir("/proc/self/fd") as entries:
        return sum("memfd:mine" in os.readlink(entry.path) for entry in entries)

here, there = multiprocessing.Pipe()
with dmabuf.memfd(4096, "mine") as fd:
    here.send(fd)
assert held() == 1
resource_sharer.stop(timeout=5)
assert held() == 0
"""
    done = python(script)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_order_of_imports_does_not_matter(python: Any) -> None:
    script = """
import pickle, sys
from l0py import dmabuf
with dmabuf.memfd(4096) as fd:
    assert "multiprocessing" not in sys.modules
    import multiprocessing
    here, there = multiprocessing.Pipe()
    here.send(fd)
    with there.recv() as got:
        assert got.identity == fd.identity
    try:
        pickle.dumps(fd)
    except TypeError:
        print("refused")
    with dmabuf.memfd(4096) as other:  # by now it has been told
        from multiprocessing.reduction import ForkingPickler
        pickle.loads(ForkingPickler.dumps(other)).close()
"""
    done = python(script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "refused\n", "")


def test_another_thread_may_just_be_importing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    unfinished = ModuleType("multiprocessing.reduction")
    monkeypatch.setitem(sys.modules, "multiprocessing.reduction", unfinished)
    monkeypatch.setattr("l0py.dmabuf.fd._introduced", set())
    with dmabuf.memfd(4096) as fd:
        assert fd.size == 4096
