from __future__ import annotations

import pytest

import l0py


def test_what_a_device_tells(device: l0py.Device) -> None:
    properties = device.properties
    assert device.properties is properties
    assert (device.name, device.type, device.uuid) == (properties.name, properties.type, properties.uuid)
    assert properties.type == "npu"
    assert len(properties.uuid) == 16
    assert properties.vendor_id == 0x8086
    assert properties.integrated
    assert properties.max_alloc_size > 1 << 20


def test_memories_and_queues(device: l0py.Device) -> None:
    (memory,) = device.memory
    assert memory.size > 1 << 20
    (group,) = device.queue_groups
    assert group.ordinal == 0
    assert {"copy", "compute"} <= group.kinds
    assert group.max_fill_pattern == 4


def test_kinds_of_handles_are_strings(device: l0py.Device) -> None:
    assert "dma_buf" in device.external_memory.imports
    assert device.external_memory.exports == {"dma_buf"}


def test_a_device_is_not_made_by_hand(device: l0py.Device) -> None:
    with pytest.raises(TypeError, match="find_device"):
        l0py.Device()
    again = l0py.Device.from_handle(device.handle, device.driver)
    assert again.name == device.name
