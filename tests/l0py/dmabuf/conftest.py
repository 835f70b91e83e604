"""Descriptors are counted around every test here; real dma-bufs where the kernel has them."""

from __future__ import annotations

import gc
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from stand_in import StandIn
from vgem import Vgem

from l0py import dmabuf

if TYPE_CHECKING:
    from collections.abc import Iterator


def open_fds() -> dict[str, str]:
    """What is open, by number."""
    gc.collect()
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the directory's own descriptor
            found[entry.name] = str(entry.readlink())
    return found


@pytest.fixture(autouse=True)
def no_fd_is_left() -> Iterator[None]:
    before = open_fds()
    yield
    deadline = time.monotonic() + 2
    while (after := open_fds()) != before and time.monotonic() < deadline:
        time.sleep(0.01)  # another thread may still be letting go
    assert after == before


@pytest.fixture(params=["stream", "seqpacket"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    kinds = {"stream": socket.SOCK_STREAM, "seqpacket": socket.SOCK_SEQPACKET}
    here, there = socket.socketpair(socket.AF_UNIX, kinds[request.param])
    with here, there:
        yield here, there


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """The kernel's documented answers where it has no such devices: see `StandIn`."""
    with StandIn(monkeypatch) as one:
        yield one


@pytest.fixture(params=["heap", "udmabuf"])
def dma_buf(request: pytest.FixtureRequest) -> Iterator[dmabuf.Fd]:
    """A real dma-buf of 8192 bytes."""
    if request.param == "heap":
        if "system" not in dmabuf.heaps():
            pytest.skip("this kernel has no /dev/dma_heap/system")
        if not os.access("/dev/dma_heap/system", os.R_OK):
            pytest.skip("this user may not use /dev/dma_heap/system")
        made = dmabuf.allocate(8192)
    else:
        if not Path("/dev/udmabuf").exists():
            pytest.skip("this kernel has no /dev/udmabuf")
        if not os.access("/dev/udmabuf", os.R_OK):
            pytest.skip("this user may not use /dev/udmabuf")
        made = dmabuf.create_udmabuf(8192)
    with made:
        yield made


@pytest.fixture
def vgem() -> Iterator[Vgem]:
    """A real source of fences."""
    found = Vgem.find()
    if found is None:
        pytest.skip("this kernel has no vgem device, or this user may not use it")
    with found:
        yield found
