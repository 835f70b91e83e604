"""Every test stands on the software driver, and can ask whether anything was leaked."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("L0PY_SOFTDRIVER", "1")
os.environ.setdefault("CI", "true")  # OpenVINO's telemetry stays off; it forks, too

import l0py
from l0py import dlpack, handles, softdriver

# Both drivers are in this process. Children choose theirs themselves: what it told its loader is not for them.
_drivers = os.environ.get("ZE_ENABLE_ALT_DRIVERS")
softdriver.enable("npu", "gpu")
if _drivers is None:
    os.environ.pop("ZE_ENABLE_ALT_DRIVERS", None)

RunPython = Callable[..., subprocess.CompletedProcess[str]]


def holdings() -> dict[str, Any]:
    """What this process holds: descriptors, mappings of shared memory, and native objects on both sides."""
    gc.collect()
    maps = Path("/proc/self/maps").read_text().splitlines()
    records = {driver.kind: softdriver.record(driver=driver.kind) for driver in l0py.drivers() if driver.is_software}
    return {
        "fds": sum(1 for _ in Path("/proc/self/fd").iterdir()),
        "mappings": sum("memfd:l0py" in line for line in maps),
        "owned": handles.live_objects(),
        "dlpack": dlpack.count(),
        "native": {kind: record["objects"] for kind, record in records.items()},
        "memory": {
            kind: {name: record["memory"][name] for name in ("now", "blocks", "imported_fds", "imported_pages")}
            for kind, record in records.items()
        },
    }


@pytest.fixture
def no_leaks(device: l0py.Device) -> Iterator[None]:
    """The test must give back all that it took. Fixtures that hold something must come before this one."""
    before = holdings()
    yield
    deadline = time.monotonic() + 2
    while (after := holdings()) != before and time.monotonic() < deadline:
        time.sleep(0.01)  # a queue's thread may still be letting go
    assert after == before


@pytest.fixture(scope="session")
def device() -> l0py.Device:
    found = l0py.find_device("npu")
    found.driver.extensions  # noqa: B018 - asked for once, so that it is no difference later
    return found


@pytest.fixture(scope="session")
def gpu() -> l0py.Device:
    """The software GPU driver's device, beside the NPU's in this process."""
    return l0py.find_device("gpu")


@pytest.fixture
def context(device: l0py.Device) -> Iterator[l0py.Context]:
    with l0py.Context(device) as made:
        yield made


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    """No test leaves an injected fault or a memory limit behind."""
    yield
    for driver in ("npu", "gpu"):
        softdriver.clear_faults(driver=driver)
        softdriver.memory_limit(None, driver=driver)


@pytest.fixture
def python() -> RunPython:
    """Runs a script in a new Python; keywords change its environment (None takes a variable out)."""

    def run(script: str, *arguments: str, **environment: str | None) -> subprocess.CompletedProcess[str]:
        changed = {**os.environ, **environment}
        kept = {name: value for name, value in changed.items() if value is not None}
        command = [sys.executable, "-c", script, *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=kept, check=False, timeout=120)

    return run


@pytest.fixture
def memfd() -> Iterator[int]:
    """Two pages behind a descriptor, as a dma-buf has them."""
    fd = os.memfd_create("test")
    os.ftruncate(fd, 8192)
    yield fd
    os.close(fd)
