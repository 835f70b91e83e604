from __future__ import annotations

import gc
import pickle
import threading
import weakref
from typing import Any

import pytest
from other_loaders import need, need_physical_memory

import l0py
from l0py import handles, softdriver
from l0py._ffi import lib as c


def native(kind: str) -> int:
    return int(softdriver.record()["objects"].get(kind, 0))


def blocks() -> int:
    return int(softdriver.record()["memory"]["blocks"])


ON_GPU: dict[str, Any] = {
    "Image": lambda context: context.create_image(4, 4),
    "PhysicalMemory": lambda context: context.create_physical(65536),
    "VirtualRange": lambda context: context.reserve(65536),
}


@pytest.fixture(params=["Driver", "Device", "Context", "Memory", *ON_GPU])
def public(request: pytest.FixtureRequest, context: l0py.Context, device: l0py.Device, gpu: l0py.Device) -> Any:
    if request.param in ON_GPU:
        if request.param != "Image":
            need_physical_memory()
        with l0py.Context(gpu) as other, ON_GPU[request.param](other) as made:
            yield made
        return
    with context.alloc_host(4096) as memory:
        yield {"Driver": device.driver, "Device": device, "Context": context, "Memory": memory}[request.param]


def same(public: Any) -> Any:
    """Another object of the same handle."""
    if isinstance(public, l0py.Driver):
        return l0py.Driver.from_handle(public.handle)
    if isinstance(public, l0py.Device):
        return l0py.Device.from_handle(public.handle, public.driver)
    if isinstance(public, l0py.Context):
        return l0py.Context.from_handle(public.handle, public.device)
    if isinstance(public, l0py.Image):
        return l0py.Image.from_handle(public.handle, 4, 4, context=public.context)
    if isinstance(public, (l0py.PhysicalMemory, l0py.VirtualRange)):
        return type(public).from_handle(public.handle, public.size, context=public.context)
    return l0py.Memory.from_handle(public.handle, public.size, context=public.context)


def test_every_public_object_is_equal_and_hashed_by_handle(public: Any) -> None:
    other = same(public)
    assert other is not public
    assert other == public
    assert hash(other) == hash(public)
    assert public != public.handle
    assert public != object()


def test_every_public_object_has_a_repr_that_helps(public: Any) -> None:
    assert repr(public).startswith(f"<l0py.{type(public).__name__} ")
    assert f"{public.handle:#x}" in repr(public)


def test_every_public_object_can_be_referred_to_weakly(public: Any) -> None:
    assert weakref.ref(public)() is public


def test_no_public_object_takes_attributes_or_pickles(public: Any) -> None:
    with pytest.raises(AttributeError):
        public.anything = 1
    with pytest.raises(TypeError):
        pickle.dumps(public)


def test_close_runs_once(device: l0py.Device, no_leaks: None) -> None:
    context = l0py.Context(device)
    memory = context.alloc_host(4096)
    for one in (memory, memory, context, context):
        one.close()
        assert one.closed
    assert softdriver.record()["memory"]["blocks"] == 0


def test_what_is_closed_says_so(device: l0py.Device, no_leaks: None) -> None:
    context = l0py.Context(device)
    memory = context.alloc_host(4096)
    memory.close()
    for use in (lambda: memory.address, memory.view, memory.range, memory.__enter__, lambda: memory.fill(0)):
        with pytest.raises(l0py.Closed, match="it is closed"):
            use()
    context.close()
    with pytest.raises(l0py.Closed):
        context.alloc_host(4096)
    assert "(closed)" in repr(memory)


def test_a_context_is_destroyed_after_the_last_of_its_memory(device: l0py.Device, no_leaks: None) -> None:
    before = native("context")
    context = l0py.Context(device)
    memory = context.alloc_host(4096)
    array = memory.numpy("u1")
    context.close()
    assert native("context") == before + 1
    with pytest.raises(l0py.Closed, match="what it was made from is closed"):
        memory.numpy()
    array[:] = 7  # the pages are still there
    assert array.sum() == 7 * 4096
    del array
    memory.close()
    assert native("context") == before


def test_the_collector_releases_in_the_right_order_whatever_the_cycle(device: l0py.Device, no_leaks: None) -> None:
    class Node:
        pass

    for order in range(2):
        context = l0py.Context(device)
        memory = context.alloc_host(4096)
        context.alloc_device(4096).fill(1)
        node = Node()
        node.items = (context, memory) if order else (memory, context)  # type: ignore[attr-defined]
        node.array, node.self = memory.numpy(), node  # type: ignore[attr-defined]
        del context, memory, node
    gc.collect()


def test_views_keep_the_memory_that_nobody_else_holds(context: l0py.Context) -> None:
    before = blocks()
    array = context.alloc_host(4096).numpy("u1")
    array[:] = 3
    gc.collect()
    assert blocks() == before + 1
    assert array.sum() == 3 * 4096
    del array
    gc.collect()
    assert blocks() == before


def test_an_interrupt_right_after_the_call_loses_nothing(
    no_leaks: None, gpu: l0py.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_arguments: object, **_keywords: object) -> None:
        raise KeyboardInterrupt

    need_physical_memory()
    with l0py.Context(gpu) as context:
        for make in ON_GPU.values():
            make(context).close()
            with monkeypatch.context() as patch:
                patch.setattr(handles, "check", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    make(context)


def test_many_threads_close_one_memory_once(context: l0py.Context, no_leaks: None) -> None:
    for _ in range(50):
        memory = context.alloc_host(4096)
        start = threading.Barrier(4)

        def close(memory: l0py.Memory = memory, start: threading.Barrier = start) -> None:
            start.wait()
            memory.close()

        threads = [threading.Thread(target=close) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def test_a_context_closed_under_threads_that_allocate_is_never_used_after(device: l0py.Device, no_leaks: None) -> None:
    softdriver.reset_record()
    softdriver.record_calls()
    try:
        for _ in range(20):
            context = l0py.Context(device)
            failures: list[BaseException] = []

            def work(context: l0py.Context = context, failures: list[BaseException] = failures) -> None:
                try:
                    while True:
                        context.alloc_host(4096).close()
                except l0py.Closed:
                    pass
                except BaseException as error:
                    failures.append(error)

            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            context.close()
            for thread in threads:
                thread.join()
            assert not failures
        assert not any(call["failures"] for call in softdriver.record()["calls"].values())
    finally:
        softdriver.record_calls(False)


def test_what_is_held_is_not_destroyed(context: l0py.Context) -> None:
    before = blocks()
    memory = context.alloc_host(4096)
    with memory.held() as address:
        assert address == memory.address
        memory.close()
        assert blocks() == before + 1
    assert blocks() == before
    with pytest.raises(l0py.Closed), memory.held():
        pass


def test_borrowed_handles_are_never_released_and_keep_their_owner(context: l0py.Context) -> None:
    class Owner:
        pass

    memory, owner = context.alloc_host(4096), Owner()
    alive = weakref.ref(owner)
    borrowed = l0py.Memory.from_handle(memory.address, 4096, context=context, owner=owner)
    del owner
    gc.collect()
    assert alive() is not None
    borrowed.close()
    assert alive() is None
    assert borrowed.closed
    assert memory.properties.type == "host"
    memory.close()


def test_the_owner_of_a_borrowed_context_outlives_its_memory(context: l0py.Context) -> None:
    class Owner:
        pass

    owner = Owner()
    alive = weakref.ref(owner)
    borrowed = l0py.Context.from_handle(context.handle, context.device, owner=owner)
    memory = borrowed.alloc_host(4096)
    del owner
    borrowed.close()
    gc.collect()
    assert alive() is not None
    memory.close()
    assert alive() is None
    assert not context.closed


def test_closing_raises_what_the_driver_answers_and_is_closed_all_the_same(context: l0py.Context) -> None:
    memory = context.alloc_host(4096)
    address = memory.address
    softdriver.inject("zeMemFree", result="ZE_RESULT_ERROR_DEVICE_LOST")
    with pytest.raises(l0py.DeviceLost, match="zeMemFree"):
        memory.close()
    assert memory.closed
    memory.close()
    l0py.lib.zeMemFree(context.handle, address)


def test_a_child_of_a_fork_releases_nothing(python: Any) -> None:
    script = """
import gc, os, sys
import l0py
from l0py import softdriver
context = l0py.Context(l0py.find_device())
memory = context.alloc_host(4096)
softdriver.record_calls()
softdriver.reset_record()
child = os.fork()
if child == 0:
    try:
        memory.address
    except l0py.Closed as error:
        assert "before a fork" in str(error), error
    else:
        os._exit(2)
    memory.close()
    context.close()
    del memory, context
    gc.collect()
    os._exit(3 if softdriver.record()["calls"] else 0)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert memory.properties.type == "host"
memory.close()
assert softdriver.record()["calls"]["zeMemFree"]["count"] == 1
"""
    done = python(script, PYTHONWARNINGS="ignore")  # of forks beside threads
    assert (done.returncode, done.stderr) == (0, "")


def test_a_child_of_a_fork_releases_nothing_of_the_gpu(python: Any) -> None:
    need_physical_memory()
    need("zeMemPutIpcHandle")
    script = """
import gc, os
import l0py
from l0py import softdriver
context = l0py.Context(l0py.find_device("gpu"))
memory, image, physical = context.alloc_device(65536), context.create_image(4, 4), context.create_physical(65536)
addresses = context.reserve(65536)
mapped, handle = addresses.map(physical), memory.ipc_handle()
opened = context.open_ipc(handle)
objects = [opened, handle, mapped, addresses, physical, image, memory, context]
softdriver.record_calls(driver="gpu")
softdriver.reset_record(driver="gpu")
child = os.fork()
if child == 0:
    for one in objects:
        one.close()
    del opened, handle, mapped, addresses, physical, image, memory, context, objects, one
    gc.collect()
    os._exit(3 if softdriver.record(driver="gpu")["calls"] else 0)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
mapped.fill(1)
opened.fill(1)
for one in objects:
    one.close()
calls = softdriver.record(driver="gpu")["calls"]
print(*sorted(name for name in calls if any(end in name for end in ("Free", "Destroy", "Unmap", "Close", "Put"))))
"""
    done = python(script, L0PY_SOFTDRIVER="gpu", PYTHONWARNINGS="ignore")  # of forks beside threads
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.split()) >= {
        "zeContextDestroy", "zeImageDestroy", "zeMemCloseIpcHandle", "zeMemFree", "zeMemPutIpcHandle",
        "zePhysicalMemDestroy", "zeVirtualMemFree", "zeVirtualMemUnmap",
    }  # fmt: skip


def test_the_interpreter_ends_quietly_with_everything_open(python: Any) -> None:
    script = """
import l0py, sys
context = l0py.Context(l0py.find_device())
memory = context.alloc_host(4096)
array = memory.numpy()
device_memory = context.alloc_device(4096)
device_memory.fill(1)
sys.modules["kept"] = [context, memory, array, device_memory]
class Late:
    def __init__(self): self.memory = context.alloc_host(4096)
    def __del__(self): self.memory.close()
late = Late()
"""
    done = python(script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_boxes_are_counted(context: l0py.Context) -> None:
    before = handles.live_objects()
    memory = context.alloc_host(4096)
    assert handles.live_objects()["memory"] == before["memory"] + 1
    memory.close()
    assert handles.live_objects() == before
    assert c.l0_box_count(c.L0_CONTEXT) == before["context"]


def test_a_pending_exception_is_not_hidden_by_living_views(context: l0py.Context) -> None:
    memory = context.alloc_host(4096)
    view = memory.view()
    with pytest.raises(ZeroDivisionError), memory:
        raise ZeroDivisionError
    assert not memory.closed
    del view
    memory.close()


@pytest.mark.parametrize("kind", ["npu", "gpu"])
def test_a_fork_while_threads_work(python: Any, kind: str) -> None:
    """What other threads had locked stays locked in the child for ever: it must not wait for that."""
    script = """
import os, signal, sys, threading
import l0py
device = l0py.find_device(sys.argv[1])
context = l0py.Context(device)
working = True

def use(context):
    with context.alloc_host(4096, exportable=True) as memory, memory.export() as fd:
        context.import_dma_buf(fd).close()
        memory.fill(2)

def work():
    while working:
        use(context)

threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(10):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        with l0py.Context(device) as own:
            use(own)
        context.close()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if status:
        break
working = False
for thread in threads:
    thread.join()
print(status)
"""
    done = python(script, kind, L0PY_SOFTDRIVER=kind)
    assert done.stdout.strip() == "0", done.stderr
