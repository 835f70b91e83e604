"""IPC handles, on the software GPU driver, between real processes."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from other_loaders import need
from through_device import first_byte

import l0py
from l0py import dmabuf, external, lib, softdriver
from l0py._ffi import ffi

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RELEASES = ["22.43", "26.13", "26.14"]
CONVERSIONS = ("zeMemGetFileDescriptorFromIpcHandleExp", "zeMemGetIpcHandleFromFileDescriptorExp")


@pytest.fixture(params=["26.14"])
def on_gpu(request: pytest.FixtureRequest, no_leaks: None, gpu: l0py.Device) -> Iterator[l0py.Context]:
    softdriver.imitate(request.param)
    with l0py.Context(gpu) as context:
        yield context
    softdriver.clear_faults(driver="gpu")
    softdriver.imitate("26.14")


every_release = pytest.mark.parametrize("on_gpu", RELEASES, indirect=True)


@every_release
def test_each_open_is_the_same_memory_at_another_address(on_gpu: l0py.Context, gpu: l0py.Device) -> None:
    with on_gpu.alloc_device(8192) as memory, memory.ipc_handle() as handle:
        assert (len(bytes(handle)), handle.size) == (64, 8192)
        with on_gpu.open_ipc(handle) as first, on_gpu.open_ipc(handle, gpu, size=4096) as second:
            assert len({memory.address, first.address, second.address}) == 3
            assert (first.kind, first.origin, first.device, first.size) == ("device", "ipc", gpu, 8192)
            assert second.size == 4096
            memory.fill(3)
            assert first_byte(first) == first_byte(second) == 3
            second.fill(4)
            assert first_byte(memory) == 4


def test_host_memory_is_shared_too(on_gpu: l0py.Context) -> None:
    with on_gpu.alloc_host(4096) as memory, memory.ipc_handle() as handle, on_gpu.open_ipc(handle) as opened:
        assert (opened.kind, opened.device) == ("host", None)
        memory.view()[7] = 1
        assert opened.view()[7] == 1


def test_what_is_opened_is_closed_not_freed(on_gpu: l0py.Context) -> None:
    need("zeMemPutIpcHandle")
    softdriver.reset_record(driver="gpu")
    softdriver.record_calls(driver="gpu")
    try:
        memory = on_gpu.alloc_device(4096)
        handle = memory.ipc_handle()
        opened = on_gpu.open_ipc(handle, flags=("cached",))
        for one in (opened, opened, memory, memory, handle, handle):
            one.close()
        trace = [call["function"] for call in softdriver.record(driver="gpu")["trace"]]
    finally:
        softdriver.record_calls(False, driver="gpu")
    ends = [name for name in trace if name in ("zeMemCloseIpcHandle", "zeMemPutIpcHandle", "zeMemFree")]
    assert ends == ["zeMemCloseIpcHandle", "zeMemPutIpcHandle", "zeMemFree"]


@every_release
def test_what_is_opened_outlives_handle_memory_and_context(on_gpu: l0py.Context, gpu: l0py.Device) -> None:
    with l0py.Context(gpu) as other:
        memory = other.alloc_device(4096)
        memory.fill(9)
        handle = memory.ipc_handle()
        opened = on_gpu.open_ipc(handle)
        memory.close()
        assert bytes(handle)  # which keeps the memory for those who are yet to open it
        on_gpu.open_ipc(handle).close()
        handle.close()
    assert first_byte(opened) == 9
    opened.close()


def test_a_stale_handle(on_gpu: l0py.Context) -> None:
    with on_gpu.alloc_device(4096) as memory:
        handle = memory.ipc_handle()
        stale = bytes(handle)
        handle.close()
        with pytest.raises(l0py.Closed):
            on_gpu.open_ipc(handle)
    for use in (lambda: bytes(handle), handle.to_fd, handle.__enter__, lambda: pickle.dumps(handle)):
        with pytest.raises(l0py.Closed):
            use()
    for _ in range(3):
        with pytest.raises(l0py.InvalidArgument, match="zeMemOpenIpcHandle"):
            on_gpu.open_ipc(stale)
    for nonsense in (bytes(64), b"\xff" * 64):
        with pytest.raises(l0py.InvalidArgument, match="zeMemOpenIpcHandle"):
            on_gpu.open_ipc(nonsense)


@pytest.mark.parametrize("data", [b"", bytes(63), bytes(65)])
def test_what_is_no_handle(on_gpu: l0py.Context, data: bytes) -> None:
    for use in (on_gpu.open_ipc, l0py.IpcHandle):
        with pytest.raises(l0py.InvalidArgument, match="are no IPC handle, which has 64"):
            use(data)


def test_sizes_and_flags_that_cannot_be(on_gpu: l0py.Context) -> None:
    with on_gpu.alloc_device(4096) as memory, memory.ipc_handle() as handle:
        for size in (0, -1, 1 << 40):
            with pytest.raises(l0py.InvalidArgument, match="not the"):
                on_gpu.open_ipc(handle, size=size)
        with pytest.raises(l0py.InvalidArgument, match="unknown flag 'fast': there are cached, uncached"):
            on_gpu.open_ipc(handle, flags="fast")


@pytest.mark.parametrize("function", ["zeMemOpenIpcHandle", "zeMemGetAddressRange", "zeMemGetAllocProperties"])
def test_a_failing_open_leaves_nothing(on_gpu: l0py.Context, function: str) -> None:
    with on_gpu.alloc_device(4096) as memory, memory.ipc_handle() as handle:
        for _ in range(5):
            softdriver.inject(function, driver="gpu", result="ZE_RESULT_ERROR_DEVICE_LOST")
            with pytest.raises(l0py.DeviceLost, match=function):
                on_gpu.open_ipc(handle)


def test_a_failing_get_leaves_nothing(on_gpu: l0py.Context) -> None:
    softdriver.inject("zeMemGetIpcHandle", driver="gpu", result="ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY")
    with on_gpu.alloc_device(4096) as memory:
        with pytest.raises(l0py.OutOfMemory):
            memory.ipc_handle()
        memory.ipc_handle().close()
    with pytest.raises(l0py.Closed):
        memory.ipc_handle()


def test_an_interrupt_right_after_the_call_loses_nothing(on_gpu: l0py.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_arguments: object, **_keywords: object) -> None:
        raise KeyboardInterrupt

    with on_gpu.alloc_device(4096) as memory, memory.ipc_handle() as handle, monkeypatch.context() as patch:
        patch.setattr("l0py.ipc.check", interrupted)
        patch.setattr("l0py.handles.check", interrupted)
        with pytest.raises(KeyboardInterrupt):
            memory.ipc_handle()
        with pytest.raises(KeyboardInterrupt):
            on_gpu.open_ipc(handle)


def test_a_handle_as_a_descriptor(on_gpu: l0py.Context) -> None:
    """This driver converts only descriptors that it gave out itself: the error says so, and nothing is left behind."""
    need(*CONVERSIONS)
    with on_gpu.alloc_device(4096, exportable=True) as memory, memory.ipc_handle() as handle, handle.to_fd() as fd:
        assert fd.size == 4096
        with memory.export() as exported:
            assert fd.identity == exported.identity
        with l0py.IpcHandle.from_fd(fd, 4096) as received:
            assert received.size == 4096
            with received.to_fd() as same:
                assert same.identity == fd.identity
            with pytest.raises(l0py.NotSupported, match="has no bytes"):
                bytes(received)
            with pytest.raises(l0py.InvalidArgument, match="not a descriptor that this driver gave out"):
                on_gpu.open_ipc(received)
        assert received.closed
        assert fd.size == 4096
    with pytest.raises(l0py.BadDescriptor):
        l0py.IpcHandle.from_fd(1 << 20)
    with pytest.raises(l0py.NotSupported, match="only the process that got"):
        l0py.IpcHandle(bytes(64)).to_fd()


@pytest.mark.parametrize("on_gpu", ["26.14"], indirect=True)
def test_a_descriptor_that_the_driver_does_convert(on_gpu: l0py.Context) -> None:
    """The two functions of the raw layer, in the process that has the memory."""
    need(*CONVERSIONS)
    with on_gpu.alloc_device(4096) as memory, memory.ipc_handle() as handle:
        data, number = ffi.new("ze_ipc_mem_handle_t*", {"data": bytes(handle)}), ffi.new("uint64_t*")
        assert lib.zeMemGetFileDescriptorFromIpcHandleExp(on_gpu.handle, data[0], number) == 0
        assert lib.zeMemGetIpcHandleFromFileDescriptorExp(on_gpu.handle, number[0], data) == 0
        assert bytes(ffi.buffer(data)) == bytes(handle)


@pytest.mark.parametrize("on_gpu", ["22.43"], indirect=True)
@pytest.mark.parametrize("process", [1, 2, 256, 512, 4096, 1 << 17])
def test_what_is_not_the_process_is_not_taken_for_it(
    on_gpu: l0py.Context, monkeypatch: pytest.MonkeyPatch, process: int
) -> None:
    """Old drivers' handles name no process, but hold other numbers: the memory's type, its offset in a pool."""
    for allocate in (on_gpu.alloc_host, on_gpu.alloc_device):
        with allocate(4096) as memory, memory.ipc_handle() as handle, monkeypatch.context() as here:
            here.setattr(os, "getpid", lambda: process)
            data = bytes(handle)
            for holds in (data, data[:8] + process.to_bytes(8, sys.byteorder) + data[16:]):
                assert external.ipc_descriptor(on_gpu.driver, holds) == int.from_bytes(data[:4], sys.byteorder)
            named = data[:16] + process.to_bytes(4, sys.byteorder) + data[20:]
            assert (external.ipc_descriptor(on_gpu.driver, named) is None) == (process > 2)


def test_new_drivers_name_the_process_where_it_is_looked_for(on_gpu: l0py.Context) -> None:
    with on_gpu.alloc_device(4096) as memory, memory.ipc_handle() as handle:
        assert int.from_bytes(bytes(handle)[external._PROCESS], sys.byteorder) == os.getpid()


@pytest.mark.parametrize("on_gpu", ["22.43"], indirect=True)
def test_the_bytes_of_old_drivers_need_a_descriptor(on_gpu: l0py.Context) -> None:
    """They hold a number, which in another process is another file's: wrong memory, or none."""
    with on_gpu.alloc_device(65536) as memory, memory.ipc_handle() as handle, handle.to_fd() as fd:
        memory.fill(2)
        number = int.from_bytes(bytes(handle)[:4], sys.byteorder)
        assert os.path.sameopenfile(number, fd.fileno())
        with pytest.raises(l0py.NotSupported, match="mean nothing without the descriptor"):
            on_gpu.open_ipc(bytes(handle))
        moved = (1 << 20).to_bytes(4, sys.byteorder) + bytes(handle)[4:]  # as if from another process
        with l0py.IpcHandle(moved, fd) as received, on_gpu.open_ipc(received) as opened:
            assert (opened.size, first_byte(opened)) == (65536, 2)
        assert fd.size == 65536
        with pytest.raises(l0py.BadDescriptor):
            l0py.IpcHandle(moved, 1 << 20)


def test_bytes_travel_alone_where_they_name_the_process(on_gpu: l0py.Context) -> None:
    with on_gpu.alloc_device(4096) as memory, memory.ipc_handle() as handle:
        memory.fill(2)
        with on_gpu.open_ipc(bytes(handle)) as opened, on_gpu.open_ipc(l0py.IpcHandle(bytes(handle), size=7)) as seven:
            assert first_byte(opened) == first_byte(seven) == 2
            assert seven.size == 7


CHILD = """
import multiprocessing, os, sys
import l0py
from l0py import dmabuf

def first_byte(memory):
    got = bytearray(1)
    memory.copy_to(got)
    return got[0]

def use(handle, connection):
    context = l0py.Context(l0py.find_device("gpu"))
    if handle is None:
        handle = connection.recv()
    print(handle)
    with context, context.open_ipc(handle) as memory:
        print(memory.size, memory.kind, first_byte(memory))
        memory.fill(8)
        connection.send("filled")
        connection.recv()  # the other side has let go of all it had
        print(first_byte(memory))
    handle.close()

if __name__ == "__main__":
    how, method = sys.argv[1:]
    processes = multiprocessing.get_context(method)
    dmabuf.allow_fetch()  # where the system restricts it
    with l0py.Context(l0py.find_device("gpu")) as context:
        # Other descriptors, so that a number of one process means something else in the other.
        others = [open(os.devnull) for _ in range(10)]
        memory = context.alloc_device(8192, exportable=True)
        memory.fill(7)
        here, there = processes.Pipe()
        handle = memory.ipc_handle()
        child = processes.Process(target=use, args=(handle if how == "argument" else None, there))
        child.start()
        there.close()
        if how == "pipe":
            here.send(handle)
        assert here.recv() == "filled"
        assert first_byte(memory) == 8
        handle.close()
        memory.close()
    here.send("gone")
    child.join()
    sys.exit(child.exitcode)
"""


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(("how", "method"), [("argument", "spawn"), ("pipe", "spawn"), ("pipe", "forkserver")])
def test_two_processes(tmp_path: Path, release: str, how: str, method: str) -> None:
    """Old drivers' handles hold a descriptor, which comes along; new ones fetch it from the process they name."""
    script = tmp_path / "processes.py"
    script.write_text(CHILD)
    done = run(script, how, method, L0PY_SOFTGPU_RELEASE=release)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["<l0py.IpcHandle of 8192 bytes of memory (64 bytes)>", "8192 device 7", "8"]


def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, arguments)]
    changed = {**os.environ, "L0PY_SOFTDRIVER": "gpu", **environment}
    return subprocess.run(command, env=changed, capture_output=True, text=True, timeout=120, check=False)


EXPORTER = """
import sys
import l0py
from l0py import dmabuf
dmabuf.allow_fetch()
context = l0py.Context(l0py.find_device("gpu"))
memory = context.alloc_device(4096)
memory.fill(5)
handle = memory.ipc_handle()
print(bytes(handle).hex(), flush=True)
sys.stdin.read()
"""


def exporter() -> subprocess.Popen[str]:
    environment = {**os.environ, "L0PY_SOFTDRIVER": "gpu"}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", EXPORTER], env=environment, stdin=pipe, stdout=pipe, text=True)


def test_what_is_opened_outlives_the_process_that_shared_it(on_gpu: l0py.Context) -> None:
    with exporter() as child:
        assert child.stdout
        data = bytes.fromhex(child.stdout.readline())
        with on_gpu.open_ipc(data) as memory:
            assert first_byte(memory) == 5
            child.kill()
            child.wait()
            assert first_byte(memory) == 5
            memory.fill(6)
            assert first_byte(memory) == 6
    with pytest.raises(l0py.InvalidArgument, match="zeMemOpenIpcHandle"):
        on_gpu.open_ipc(data)  # nobody has it any more


def test_a_pickle_that_no_process_takes_leaves_nothing(on_gpu: l0py.Context) -> None:
    need(*CONVERSIONS)  # without them a handle is pickled by its bytes alone
    with on_gpu.alloc_device(4096) as memory, memory.ipc_handle() as handle, pytest.raises(TypeError, match="pickle"):
        pickle.dumps(handle)


def test_npu_drivers_have_none(context: l0py.Context, no_leaks: None) -> None:
    with context.alloc_host(4096) as memory, pytest.raises(l0py.NotSupported, match=r"export\(\) shares memory"):
        memory.ipc_handle()
    with pytest.raises(l0py.NotSupported, match="zeMemOpenIpcHandle"):
        context.open_ipc(bytes(64))
    fd = os.memfd_create("test")
    os.ftruncate(fd, 4096)
    with dmabuf.Fd(fd) as owned, l0py.IpcHandle.from_fd(owned) as handle:
        with pytest.raises(l0py.NotSupported, match="zeMemGetIpcHandleFromFileDescriptorExp"):
            context.open_ipc(handle)
        assert owned.size == 4096
