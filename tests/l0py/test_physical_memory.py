"""Physical memory and virtual addresses, on the software GPU driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from other_loaders import need, need_physical_memory
from through_device import first_byte

import l0py
from l0py import external, softdriver

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = 65536


@pytest.fixture
def on_gpu(no_leaks: None, gpu: l0py.Device) -> Iterator[l0py.Context]:
    need_physical_memory()
    with l0py.Context(gpu) as context:
        yield context


def test_pages_have_a_size(on_gpu: l0py.Context) -> None:
    assert on_gpu.page_size(1) == PAGE
    assert on_gpu.page_size(1 << 30) == 2 << 20


def test_physical_memory_is_mapped_and_used(on_gpu: l0py.Context, gpu: l0py.Device) -> None:
    with on_gpu.create_physical(2 * PAGE) as physical, on_gpu.reserve(4 * PAGE) as addresses:
        assert (physical.size, physical.kind, physical.device) == (2 * PAGE, "device", gpu)
        assert addresses.size == 4 * PAGE
        with addresses.map(physical, at=PAGE) as memory:
            assert (memory.address, memory.size) == (addresses.address + PAGE, 2 * PAGE)
            assert (memory.kind, memory.origin, memory.device) == ("device", "mapped", gpu)
            assert memory.properties.type == "device"
            memory.fill(6)
            assert first_byte(memory) == 6
        with addresses.map(physical, offset=PAGE, size=PAGE) as memory:
            assert memory.size == PAGE
            assert first_byte(memory) == 6  # the same memory at another address


def test_host_memory_has_several_addresses(on_gpu: l0py.Context) -> None:
    with (
        on_gpu.create_physical(PAGE, kind="host") as physical,
        on_gpu.reserve(2 * PAGE) as addresses,
        addresses.map(physical) as first,
        addresses.map(physical, at=PAGE) as second,
    ):
        assert first.kind == second.kind == "host"
        first.view()[5] = 1
        assert second.view()[5] == 1


def test_what_is_mapped_outlives_the_others(on_gpu: l0py.Context) -> None:
    """Nothing is destroyed before what is made of it, in whatever order it is closed."""
    physical, addresses = on_gpu.create_physical(PAGE, kind="host"), on_gpu.reserve(PAGE)
    memory = addresses.map(physical)
    view = memory.view()
    physical.close()
    addresses.close()
    view[0] = 4
    assert view[0] == 4
    assert memory.closed  # what it was made from is
    with pytest.raises(l0py.InUse):
        memory.close()
    del view
    memory.close()
    for use in (physical.export, lambda: addresses.address, memory.view):
        with pytest.raises((l0py.Closed, l0py.InvalidArgument)):
            use()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 2, 1)])
def test_the_driver_sees_the_right_order(on_gpu: l0py.Context, order: tuple[int, ...]) -> None:
    softdriver.reset_record(driver="gpu")
    softdriver.record_calls(driver="gpu")
    try:
        physical, addresses = on_gpu.create_physical(PAGE), on_gpu.reserve(PAGE)
        made = [physical, addresses, addresses.map(physical)]
        for number in order:
            made[number].close()
        trace = [call["function"] for call in softdriver.record(driver="gpu")["trace"]]
    finally:
        softdriver.record_calls(False, driver="gpu")
    assert trace.index("zeVirtualMemUnmap") < trace.index("zeVirtualMemFree")
    assert trace.index("zeVirtualMemUnmap") < trace.index("zePhysicalMemDestroy")


@pytest.mark.parametrize("kind", external.FD_KINDS)
def test_physical_memory_is_exported_and_imported(on_gpu: l0py.Context, gpu: l0py.Device, kind: str) -> None:
    need("zePhysicalMemGetProperties")
    with (
        on_gpu.create_physical(PAGE, exportable=kind) as physical,
        physical.export() as fd,
        on_gpu.reserve(PAGE) as here,
        here.map(physical) as memory,
        l0py.Context(gpu) as other,
        other.import_physical(fd, type=kind) as imported,
        other.reserve(PAGE) as there,
        there.map(imported) as same,
        imported.export(kind) as again,
    ):
        assert fd.identity == again.identity
        assert imported.size == PAGE
        memory.fill(7)
        assert first_byte(same) == 7
        assert physical.id != 0


def test_a_dma_buf_becomes_physical_memory(on_gpu: l0py.Context, gpu: l0py.Device) -> None:
    with on_gpu.alloc_device(PAGE, exportable=True) as allocated, allocated.export() as fd:
        allocated.fill(8)
        with on_gpu.import_physical(fd) as physical, on_gpu.reserve(PAGE) as addresses:
            allocated.close()
            with addresses.map(physical) as memory:
                assert first_byte(memory) == 8


@pytest.mark.parametrize("release", ["26.13", "26.14"])
def test_imports_leave_no_descriptor(on_gpu: l0py.Context, release: str) -> None:
    need("zePhysicalMemGetProperties")
    try:
        softdriver.imitate(release)
        with on_gpu.create_physical(PAGE, exportable=True) as physical, physical.export() as fd:
            for _ in range(10):
                on_gpu.import_physical(fd).close()
                softdriver.inject("zePhysicalMemCreate", driver="gpu", result="ZE_RESULT_ERROR_DEVICE_LOST")
                with pytest.raises(l0py.DeviceLost):
                    on_gpu.import_physical(fd)
            assert fd.size == PAGE
    finally:
        softdriver.imitate("26.14")


def test_access(on_gpu: l0py.Context) -> None:
    with on_gpu.create_physical(PAGE, kind="host") as physical, on_gpu.reserve(PAGE) as addresses:
        with addresses.map(physical, access="read_only") as memory:
            assert addresses.access() == ("read_only", PAGE)
            assert memory.read_only
            assert memory.view().readonly
            with pytest.raises(l0py.InvalidArgument, match="read-only"):
                memory.fill(1)
            addresses.set_access("read_write")
            assert addresses.access(size=PAGE)[0] == "read_write"
        with addresses.map(physical, access="none") as memory:
            memory.view()[0] = 1  # access is the device's
            for use in (lambda: memory.fill(2), lambda: memory.copy_to(on_gpu.alloc_host(PAGE))):
                with pytest.raises(l0py.InvalidArgument):
                    use()
            assert memory.view()[0] == 1
        for wrong in ("all", "READ", ""):
            with pytest.raises(l0py.InvalidArgument, match="is none of 'none', 'read_write', 'read_only'"):
                addresses.set_access(wrong)


@pytest.mark.parametrize(
    "how",
    [{"at": PAGE}, {"at": -PAGE}, {"offset": PAGE}, {"offset": -1}, {"size": 2 * PAGE}, {"size": 0}, {"access": "x"}],
)
def test_mappings_that_do_not_fit(on_gpu: l0py.Context, how: dict[str, Any]) -> None:
    with on_gpu.create_physical(PAGE) as physical, on_gpu.reserve(PAGE) as addresses:
        with pytest.raises(l0py.InvalidArgument):
            addresses.map(physical, **how)
        addresses.map(physical).close()


def test_what_is_mapped_already(on_gpu: l0py.Context) -> None:
    with on_gpu.create_physical(PAGE) as physical, on_gpu.reserve(2 * PAGE) as addresses, addresses.map(physical):
        with pytest.raises(l0py.InvalidArgument, match="zeVirtualMemMap"):
            addresses.map(physical, at=PAGE)  # device memory has one mapping at most
        with on_gpu.create_physical(PAGE) as other, pytest.raises(l0py.InvalidArgument, match="zeVirtualMemMap"):
            addresses.map(other)


def test_sizes_that_cannot_be(on_gpu: l0py.Context) -> None:
    for size in (0, -PAGE, 1, PAGE + 1):
        with pytest.raises(l0py.InvalidArgument):
            on_gpu.create_physical(size)
    for size in (0, -1, 1 << 64):
        with pytest.raises(l0py.InvalidArgument):
            on_gpu.reserve(size)
    with pytest.raises(l0py.InvalidArgument, match="kind 'shared' is none of 'device', 'host'"):
        on_gpu.create_physical(PAGE, kind="shared")
    with pytest.raises(l0py.NotSupported, match="opaque_win32"):
        on_gpu.create_physical(PAGE, exportable="opaque_win32")
    with on_gpu.create_physical(PAGE) as physical, pytest.raises(l0py.InvalidArgument, match="create it so"):
        physical.export()


def test_descriptors_that_are_no_physical_memory(on_gpu: l0py.Context, memfd: int) -> None:
    with pytest.raises(l0py.InvalidArgument, match="8192 bytes: it has a positive multiple of 65536"):
        on_gpu.import_physical(memfd)
    with pytest.raises(l0py.InvalidArgument, match="has 8192 bytes, fewer"):
        on_gpu.import_physical(memfd, PAGE)
    with pytest.raises(l0py.NotSupported, match="cannot import physical memory from d3d12_heap"):
        on_gpu.import_physical(memfd, type="d3d12_heap")
    with pytest.raises(l0py.BadDescriptor):
        on_gpu.import_physical(1 << 20)


def test_closed_ones(on_gpu: l0py.Context) -> None:
    with on_gpu.create_physical(PAGE, exportable=True) as physical, on_gpu.reserve(PAGE) as addresses:
        closed = on_gpu.create_physical(PAGE)
        closed.close()
        with pytest.raises(l0py.Closed):
            addresses.map(closed)
    with pytest.raises(l0py.Closed):
        physical.export()
    with pytest.raises(l0py.Closed):
        addresses.access()
    for made in (l0py.PhysicalMemory, l0py.VirtualRange):
        with pytest.raises(TypeError, match="by a context"):
            made()


def test_npu_drivers_have_none(context: l0py.Context, memfd: int, no_leaks: None) -> None:
    need_physical_memory()
    with pytest.raises(l0py.NotSupported, match="zeVirtualMemQueryPageSize"):
        context.create_physical(4096)
    with pytest.raises(l0py.NotSupported, match="zeVirtualMemQueryPageSize"):
        context.import_physical(memfd)
    with pytest.raises(l0py.NotSupported, match="zeVirtualMemReserve"):
        context.reserve(4096)
