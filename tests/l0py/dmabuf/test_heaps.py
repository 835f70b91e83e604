"""New buffers, and why there are none; the numbers of it all against the kernel's headers."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from l0py import dmabuf
from l0py.dmabuf import _kernel

if TYPE_CHECKING:
    from stand_in import StandIn

ALLOC, CREATE, SET_NAME = 0xC0184800, 0x40187542, 0x40086201
CLOEXEC_RDWR = os.O_CLOEXEC | os.O_RDWR

#: Name here, name in the headers, direction (1 write, 2 read, 3 both), type, number, and the structure.
NUMBERS: list[tuple[str, str, int, str, int, Any]] = [
    ("DMA_BUF_SYNC", "DMA_BUF_IOCTL_SYNC", 1, "b", 0, _kernel.SYNC),
    ("DMA_BUF_SET_NAME", "DMA_BUF_SET_NAME_B", 1, "b", 1, None),
    ("DMA_BUF_EXPORT_SYNC_FILE", "DMA_BUF_IOCTL_EXPORT_SYNC_FILE", 3, "b", 2, _kernel.SYNC_FILE),
    ("DMA_BUF_IMPORT_SYNC_FILE", "DMA_BUF_IOCTL_IMPORT_SYNC_FILE", 1, "b", 3, _kernel.SYNC_FILE),
    ("SYNC_MERGE", "SYNC_IOC_MERGE", 3, ">", 3, _kernel.MERGE),
    ("SYNC_FILE_INFO", "SYNC_IOC_FILE_INFO", 3, ">", 4, _kernel.FILE_INFO),
    ("DMA_HEAP_ALLOC", "DMA_HEAP_IOCTL_ALLOC", 3, "H", 0, _kernel.HEAP_ALLOC),
    ("UDMABUF_CREATE", "UDMABUF_CREATE", 1, "u", 0x42, _kernel.CREATE),
]


@pytest.mark.parametrize(("name", "header", "direction", "kind", "number", "layout"), NUMBERS)
def test_numbers_are_what_the_formula_gives(
    name: str, header: str, direction: int, kind: str, number: int, layout: Any
) -> None:
    size = 8 if layout is None else layout.size
    assert getattr(_kernel, name) == direction << 30 | size << 16 | ord(kind) << 8 | number


def test_numbers_and_structures_are_the_headers(tmp_path: Path) -> None:
    compiler = next((path for path in map(shutil.which, ("cc", "gcc", "clang")) if path), None)
    command = [compiler] if compiler else [sys.executable, "-m", "ziglang", "cc"]
    if not compiler and subprocess.run([*command, "--version"], capture_output=True, check=False).returncode:
        pytest.skip("no C compiler")
    names = ("dma-buf", "dma-heap", "udmabuf", "sync_file")
    if not all(Path(f"/usr/include/linux/{name}.h").exists() for name in names):
        pytest.skip("no kernel headers (Debian's linux-libc-dev)")
    fields = [
        "sync_file_info, name", "sync_file_info, status",
        "sync_file_info, num_fences", "sync_file_info, sync_fence_info",
        "sync_fence_info, driver_name", "sync_fence_info, status", "sync_fence_info, timestamp_ns",
        "sync_merge_data, fd2", "sync_merge_data, fence", "dma_heap_allocation_data, fd",
        "dma_heap_allocation_data, fd_flags", "udmabuf_create, flags", "udmabuf_create, offset", "udmabuf_create, size",
    ]  # fmt: skip
    source = tmp_path / "numbers.c"
    lines = [f"#include <linux/{name}.h>" for name in names]
    lines += ["#include <linux/ioctl.h>", "#include <stddef.h>", "#include <stdio.h>", "int main(void) {"]
    lines += [f'    printf("%#lx\\n", (unsigned long){header});' for _, header, *_ in NUMBERS]
    lines += [f'    printf("%zu\\n", offsetof(struct {field}));' for field in fields]
    lines += ['    printf("%zu\\n", sizeof(struct sync_fence_info));', "    return 0;", "}"]
    source.write_text("\n".join(lines))
    program = tmp_path / "numbers"
    done = subprocess.run([*command, str(source), "-o", str(program)], capture_output=True, text=True, check=False)
    if "UDMABUF_CREATE" not in done.stderr and "EXPORT_SYNC_FILE" in done.stderr:
        pytest.skip("the kernel headers are older than Linux 6.0")
    assert done.returncode == 0, done.stderr
    answers = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout.split()
    assert [int(one, 16) for one in answers[: len(NUMBERS)]] == [getattr(_kernel, name) for name, *_ in NUMBERS]
    assert [int(one) for one in answers[len(NUMBERS) :]] == [
        0, 32, 40, 48, 32, 64, 72, 32, 36, 8, 12, 4, 8, 16, _kernel.FENCE_INFO.size,
    ]  # fmt: skip


def test_a_sealed_memfd() -> None:
    with dmabuf.memfd(5000, "frames") as fd, fd.mmap() as mapped:
        assert (fd.size, fd.kind, fd.name, fd.seals) == (5000, "memfd", "frames", {"shrink", "grow"})
        assert not os.get_inheritable(fd.fileno())
        assert mapped[:] == bytes(5000)


@pytest.mark.parametrize("size", [0, -1, 1 << 63, -(1 << 70)])
def test_sizes_that_nothing_can_have(size: int) -> None:
    for make in (dmabuf.memfd, dmabuf.allocate, dmabuf.create_udmabuf):
        with pytest.raises(ValueError, match="cannot make a buffer"):
            make(size)


def test_real_memory_from_each_maker(dma_buf: dmabuf.Fd) -> None:
    assert dma_buf.kind == "dma_buf"
    with dmabuf.cpu_access(dma_buf), dma_buf.mmap() as mapped:
        assert mapped[:] == bytes(8192)


def test_a_real_heap() -> None:
    found = dmabuf.heaps()
    if not Path("/dev/dma_heap").exists():
        assert found == []
        with pytest.raises(FileNotFoundError, match="there is no /dev/dma_heap/system: this machine has none"):
            dmabuf.allocate(4096)
        pytest.skip("this kernel has no /dev/dma_heap")
    with dmabuf.allocate(5000, found[0], name="frame") as fd:
        assert (fd.size, fd.name) == (8192, "frame")
    with pytest.raises(FileNotFoundError, match=found[0]):
        dmabuf.allocate(4096, "none such")
    with pytest.raises(ValueError, match="31 bytes"):
        dmabuf.allocate(4096, found[0], name="x" * 32)


def test_a_real_udmabuf_shares_the_pages() -> None:
    with dmabuf.memfd(16384) as memfd, memfd.mmap() as ours:
        if not Path("/dev/udmabuf").exists():
            with pytest.raises(FileNotFoundError, match=r"there is no /dev/udmabuf.*CONFIG_UDMABUF"):
                dmabuf.from_memfd(memfd)
            pytest.skip("this kernel has no /dev/udmabuf")
        with dmabuf.from_memfd(memfd, 4096, 8192) as fd:
            assert (fd.kind, fd.size) == ("dma_buf", 8192)
            memfd.close()
            with dmabuf.cpu_access(fd), fd.mmap() as theirs:
                ours[4096] = 5
                assert theirs[0] == 5
                theirs[8191] = 6
                assert ours[4096 + 8191] == 6
    with dmabuf.create_udmabuf(5000, name="frame") as fd:
        assert (fd.size, fd.name) == (8192, "frame")
    with pytest.raises(OSError, match=r"udmabuf makes at most \d+ MiB"):
        dmabuf.create_udmabuf(1 << 40)


def test_what_a_heap_is_asked(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.nodes(tmp_path)
    assert dmabuf.heaps() == ["system"]
    with dmabuf.allocate(5000) as fd:
        assert stand_in.calls == [("alloc", 5000, 0, CLOEXEC_RDWR, 0)]
        assert (fd.size, fd.kind) == (8192, "dma_buf")
    with dmabuf.allocate(4096, name="frame") as fd:
        assert stand_in.names[fd.identity] == b"frame\0"
    for name in ("", ".", "..", "../udmabuf", "/dev/zero"):
        with pytest.raises(ValueError, match="no heap's name; here are system"):
            dmabuf.allocate(4096, name)
    with pytest.raises(FileNotFoundError, match="this machine has system"):
        dmabuf.allocate(4096, "cma")
    with pytest.raises(ValueError, match="31 bytes"):
        dmabuf.allocate(4096, name="x" * 32)


def test_more_than_all_memory_is_not_even_asked_for(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.nodes(tmp_path)
    with pytest.raises(OSError, match="has less memory") as caught:
        dmabuf.allocate(1 << 60)
    assert caught.value.errno == errno.ENOMEM
    assert stand_in.calls == []


def test_what_udmabuf_is_asked(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.nodes(tmp_path)
    with dmabuf.memfd(16384) as memfd:
        for arguments, expected in (((), (0, 16384)), ((4096,), (4096, 12288)), ((8192, 4096), (8192, 4096))):
            with dmabuf.from_memfd(memfd, *arguments) as fd:
                assert fd.size == expected[1]
            assert stand_in.calls.pop() == ("create", 16384, 1, *expected)
    with dmabuf.create_udmabuf(5000, name="frame") as fd:
        assert stand_in.calls.pop() == ("create", 8192, 1, 0, 8192)
        assert stand_in.names[fd.identity] == b"frame\0"


def test_parts_of_a_memfd_that_cannot_be_had() -> None:
    with dmabuf.memfd(8192) as memfd:
        for offset, size in ((1, 4096), (0, 100), (-4096, 4096), (0, 0), (0, -4096), (8192, None), (4096, 1)):
            with pytest.raises(ValueError, match="must be multiples of 4096"):
                dmabuf.from_memfd(memfd, offset, size)
        for offset, size in ((0, 12288), (4096, 8192), (1 << 40, 4096)):
            with pytest.raises(ValueError, match="has 8192"):
                dmabuf.from_memfd(memfd, offset, size)
    with dmabuf.memfd(5000) as memfd, pytest.raises(ValueError, match="5000 bytes at 0"):
        dmabuf.from_memfd(memfd)


def test_memfds_that_do_not_do(memfd: int, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"can still be shrunk.*MFD_ALLOW_SEALING"):
        dmabuf.from_memfd(memfd)
    with dmabuf.memfd(4096) as sealed:
        sealed.add_seals("write")
        with pytest.raises(OSError, match="sealed against writing"):
            dmabuf.from_memfd(sealed)
    reader, writer = os.pipe()
    with dmabuf.Fd(reader), dmabuf.Fd(writer), pytest.raises(OSError, match="no memfd") as caught:
        dmabuf.from_memfd(reader)
    assert caught.value.errno == errno.EINVAL
    with pytest.raises(OSError, match="Bad file descriptor"):
        dmabuf.from_memfd(-1)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOMEM, errno.EINVAL, errno.ENOTTY, errno.EPERM])
def test_a_failing_call_leaves_nothing(stand_in: StandIn, tmp_path: Path, code: int) -> None:
    stand_in.nodes(tmp_path)
    for number, use in ((ALLOC, lambda: dmabuf.allocate(4096)), (CREATE, lambda: dmabuf.create_udmabuf(4096))):
        stand_in.fail(number, code)
        with pytest.raises(OSError, match="4096 bytes through") as caught:
            use()
        assert caught.value.errno == code
        stand_in.fail(SET_NAME, code)
    with pytest.raises(OSError):
        dmabuf.allocate(4096, name="frame")
    stand_in.fail(SET_NAME, code)
    with pytest.raises(OSError):
        dmabuf.create_udmabuf(4096, name="frame")


def test_a_system_call_that_fails_in_the_middle_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: Any) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    for place in ("os.ftruncate", "l0py.dmabuf._kernel.add_seals", "os.memfd_create"):
        with monkeypatch.context() as one:
            one.setattr(place, refuse)
            with pytest.raises(OSError, match="Input/output"):
                dmabuf.memfd(4096)


def test_a_node_that_this_user_may_not_open(stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in.nodes(tmp_path)
    real = os.open

    def open_or_refuse(path: Any, flags: int, *rest: Any) -> int:
        if str(path).startswith(str(tmp_path)):
            raise OSError(code, os.strerror(code), path)
        return real(path, flags, *rest)

    monkeypatch.setattr(os, "open", open_or_refuse)
    for code, text in (
        (errno.EACCES, r"this user may not open .*: uid \d+ or gid \d+, mode 0\d{3}, may"),
        (errno.ENXIO, "there is no driver behind"),
        (errno.EMFILE, "Too many open files"),
    ):
        for use in (lambda: dmabuf.allocate(4096), lambda: dmabuf.create_udmabuf(4096)):
            with pytest.raises(OSError, match=text) as caught:
                use()
            assert caught.value.errno == code


def test_a_node_that_is_something_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "udmabuf").write_bytes(b"")
    monkeypatch.setattr(_kernel, "UDMABUF", str(tmp_path / "udmabuf"))
    with pytest.raises(OSError, match="something else") as caught:
        dmabuf.create_udmabuf(mmap.PAGESIZE)
    assert caught.value.errno == errno.ENOTTY
