"""A Debian 13 tree with its own loader, in which the project is installed from wheels brought in from outside.

Everything is mounted inside a mount namespace that ends with the command: nothing is left mounted, whatever happens.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
SUITE = "trixie"
PYTHON = "3.13"
PACKAGES = "libze1,python3,python3-venv"
#: What the tests and the demo need in the tree beside the project itself; its extras name the same.
REQUIREMENTS = (
    "cffi", "numpy", "openvino", "pillow", "rapidocr>=3.10,<3.11", "scikit-image",
    "pytest", "pytest-timeout", "hypothesis",
)  # fmt: skip
PLATFORMS = ("manylinux_2_41", "manylinux_2_39", "manylinux_2_34", "manylinux_2_28", "manylinux_2_27",
             "manylinux_2_24", "manylinux_2_17", "manylinux2014")  # fmt: skip

#: Arguments: tree, repository, wheels, then the command. What comes from outside can only be read.
ENTER = """
set -eu
tree=$1 repository=$2 wheels=$3; shift 3
show() { mkdir -p "$2"; mount --bind "$1" "$2"; mount -o remount,ro,bind "$2"; }
mount -t proc proc "$tree/proc"
mount --rbind /dev "$tree/dev"
mount --rbind /sys "$tree/sys"
show "$repository" "$tree/src"
show "$wheels" "$tree/wheels"
exec chroot "$tree" "$@"
"""
NAMESPACE = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child")


class Unavailable(Exception):
    """The tree cannot be had here; the text says why."""


def _run(command: list[str], what: str, *, timeout: float) -> None:
    """Runs a command of the set-up; `Unavailable` with its last words when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise Unavailable(f"{what} failed: {' '.join(last) or done.returncode}")


@dataclass(frozen=True)
class Tree:
    """A root directory, and the virtual environment in it."""

    path: Path
    wheels: Path

    def command(self, *arguments: str) -> list[str]:
        """The command that runs `arguments` inside the tree."""
        return [*NAMESPACE, "sh", "-c", ENTER, "enter", str(self.path), str(ROOT), str(self.wheels), *arguments]

    def run(self, *arguments: str, timeout: float = 600, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs `arguments` inside the tree, with nothing of this process's environment."""
        # CI keeps OpenVINO's telemetry from sending anything.
        env = {"PATH": "/opt/venv/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", "CI": "true"} | environment
        # The shell outside needs a path too; chroot's command inherits it.
        return subprocess.run(
            self.command(*arguments),
            env=env | {"PATH": f"{env['PATH']}:/usr/sbin:/sbin"},
            capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip


def make_tree() -> Tree:
    """The tree, made or brought up to date. Raises `Unavailable`."""
    if os.geteuid() != 0:
        raise Unavailable("a Debian 13 tree needs root (debootstrap, chroot)")
    if subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode != 0:
        raise Unavailable("this root may not make mount namespaces")
    tree = Tree(CACHE / SUITE, CACHE / "wheels")
    _bootstrap(tree.path)
    _download(tree.wheels)
    _install(tree, _build_project(tree.wheels))
    return tree


def _bootstrap(path: Path) -> None:
    complete = path.with_suffix(".complete")
    if complete.exists():
        return
    if shutil.which("debootstrap", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        _run(["apt-get", "install", "-y", "debootstrap"], "installing debootstrap", timeout=300)
    if path.exists():
        _remove(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [*NAMESPACE, "debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(path)]
    _run(command, "debootstrap", timeout=900)
    complete.touch()


def _remove(path: Path) -> None:
    """Removes a tree that was left half made, but never through a mount."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    inside = [mount for mount in mounts if Path(mount).is_relative_to(path)]
    if inside:
        raise Unavailable(f"something is mounted in {path}: {', '.join(inside)}")
    shutil.rmtree(path)


def _download(wheels: Path) -> None:
    """The third-party wheels for the tree's Python, once per list of requirements."""
    wheels.mkdir(parents=True, exist_ok=True)
    wanted = "\n".join(REQUIREMENTS)
    complete = wheels / "complete"
    if complete.exists() and complete.read_text() == wanted:
        return
    tags = [f"--platform={platform}_x86_64" for platform in PLATFORMS]
    tags += [f"--python-version={PYTHON}", "--implementation=cp", "--abi=cp313", "--abi=abi3", "--abi=none"]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--dest", str(wheels)]
    _run([*pip, *tags, *REQUIREMENTS], "downloading wheels", timeout=900)
    complete.write_text(wanted)


def _build_project(wheels: Path) -> Path:
    """The project's own wheel, built out here: its ABI is stable, so the tree's Python takes it."""
    for old in wheels.glob("l0py-*.whl"):
        old.unlink()
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels)]
    built = subprocess.run(
        [*pip, f"--config-settings=build-dir={CACHE / 'build'}", str(ROOT)], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, f"the project's wheel does not build:\n{built.stdout}\n{built.stderr}"
    (wheel,) = wheels.glob("l0py-*.whl")
    return wheel


def _install(tree: Tree, wheel: Path) -> None:
    stamp = tree.path / "opt" / "installed"
    wanted = "\n".join(sorted(path.name for path in tree.wheels.glob("*.whl")))
    if not stamp.exists() or stamp.read_text() != wanted:
        _inside(tree, "python3", "-m", "venv", "--clear", "/opt/venv")
        _inside(tree, "pip", "install", "--quiet", "--no-index", "--find-links=/wheels", *REQUIREMENTS)
        stamp.write_text(wanted)
    _inside(tree, "pip", "install", "--quiet", "--no-index", "--no-deps", "--force-reinstall", f"/wheels/{wheel.name}")


def _inside(tree: Tree, *arguments: str) -> None:
    done = tree.run(*arguments)
    assert done.returncode == 0, f"{' '.join(arguments)} in the tree:\n{done.stdout}\n{done.stderr}"
