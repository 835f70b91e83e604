"""A Debian kernel that has what most machines here lack: dma-buf heaps, udmabuf and the fences of vgem.

It is emulated by QEMU, sees this machine's files read-only, and runs one command among them.
"""

from __future__ import annotations

import lzma
import os
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CACHE = ROOT / ".cache" / "kernel"
KERNEL = "linux-image-6.12-amd64"
MODULES = ("9pnet_virtio", "9p", "vgem")
QEMU = "qemu-system-x86_64"

INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t devtmpfs dev /dev
for module in $(cat /lib/order); do insmod /lib/$module.ko; done
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro files /files
mount --bind /dev /files/dev
mount --bind /proc /files/proc
mount -t sysfs sys /files/sys
mkdir -p /files/dev/shm
for directory in /files/dev/shm /files/var/tmp; do mount -t tmpfs tmp $directory; done
chroot /files /bin/sh -c 'export PATH=/usr/bin:/bin HOME=/var/tmp TMPDIR=/var/tmp; COMMAND' </dev/null
echo "exit status: $?"
poweroff -f
"""


class Unavailable(Exception):
    """There is no such machine here; the text says why."""


def run(command: str, *, timeout: float) -> tuple[int, str]:
    """The command's exit status in the machine, and all that it wrote. Raises `Unavailable`."""
    packages = _packages()
    image = CACHE / "initrd"
    image.write_bytes(_cpio(_files(packages, command)))
    (kernel,) = packages.glob("boot/vmlinuz-*")
    emulator = [QEMU, "-accel", "tcg", "-cpu", "max", "-m", "1024", "-nodefaults", "-nographic", "-no-reboot"]
    emulator += ["-serial", "stdio", "-kernel", str(kernel), "-initrd", str(image)]
    emulator += ["-append", "console=ttyS0 panic=-1 quiet"]
    emulator += ["-fsdev", "local,id=files,path=/,security_model=none,readonly=on,multidevs=remap"]
    emulator += ["-device", "virtio-9p-pci,fsdev=files,mount_tag=files"]
    done = subprocess.run(
        emulator, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False
    )
    status = re.search(r"^exit status: (\d+)", done.stdout, re.MULTILINE)
    return int(status[1]) if status else -1, done.stdout + done.stderr


def _packages() -> Path:
    """The kernel's and busybox's packages, unpacked; and the emulator, which only root can install."""
    if os.uname().machine != "x86_64":
        raise Unavailable("the emulated machine is an x86-64")
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise Unavailable("the emulated machine is made from Debian's packages: no apt-get here")
    if shutil.which(QEMU) is None:
        if os.geteuid() != 0:
            raise Unavailable(f"{QEMU} is not installed, and only root can do that")
        _apt("update")
        _apt("install", "-y", "--no-install-recommends", "qemu-system-x86")
    packages = CACHE / "packages"
    complete = CACHE / "complete"
    if not complete.exists():
        shutil.rmtree(packages, ignore_errors=True)
        packages.mkdir(parents=True)
        image = re.findall(r"Depends: (linux-image-\S+)", _apt_cache("depends", KERNEL))
        if not image:
            raise Unavailable(f"this system's package lists have no {KERNEL}")
        _apt("download", image[0], "busybox-static", directory=packages)
        for package in packages.glob("*.deb"):
            subprocess.run(["dpkg", "-x", str(package), str(packages)], check=True)
            package.unlink()
        complete.touch()
    return packages


def _apt(*arguments: str, directory: Path | None = None) -> None:
    done = subprocess.run(
        ["apt-get", "-q", *arguments], cwd=directory, capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode:
        raise Unavailable(f"apt-get {arguments[0]} failed: {' '.join(done.stderr.splitlines()[-1:])}")


def _apt_cache(*arguments: str) -> str:
    return subprocess.run(["apt-cache", *arguments], capture_output=True, text=True, check=False).stdout


def _files(packages: Path, command: str) -> list[tuple[str, int, bytes]]:
    """What the machine starts from: names, modes and contents."""
    (busybox,) = (path for path in packages.rglob("bin/busybox") if path.is_file() and not path.is_symlink())
    modules = _modules(packages)
    files = [(name, 0o40755, b"") for name in ("bin", "dev", "files", "lib", "proc")]
    files += [("bin/busybox", 0o100755, busybox.read_bytes())]
    files += [("init", 0o100755, INIT.replace("COMMAND", command).encode())]
    files += [("lib/order", 0o100644, " ".join(modules).encode())]
    return files + [(f"lib/{name}.ko", 0o100644, data) for name, data in modules.items()]


def _modules(packages: Path) -> dict[str, bytes]:
    """The modules, and before each those that it needs; what is not there is built into the kernel."""
    there = {path.name.split(".")[0].replace("-", "_"): path for path in packages.rglob("*.ko*")}
    found: dict[str, bytes] = {}

    def add(name: str) -> None:
        name = name.replace("-", "_")
        if name not in there or name in found:
            return
        packed = there[name].read_bytes()
        data = lzma.decompress(packed) if there[name].suffix == ".xz" else packed
        needs = re.search(rb"\0depends=([^\0]*)\0", data)
        for other in needs[1].decode().split(",") if needs and needs[1] else []:
            add(other)
        found[name] = data

    for name in MODULES:
        add(name)
    return found


def _cpio(files: list[tuple[str, int, bytes]]) -> bytes:
    """An archive of the kind that kernels start from ("newc")."""
    archive = bytearray()
    for number, (name, mode, data) in enumerate([*files, ("TRAILER!!!", 0, b"")], 1):
        path = name.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
        archive += b"070701" + b"".join(b"%08X" % field for field in fields) + path
        archive += bytes(-len(archive) % 4)
        archive += data
        archive += bytes(-len(archive) % 4)
    return bytes(archive)
