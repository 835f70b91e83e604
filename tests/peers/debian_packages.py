"""Programs and libraries of Debian 13, unpacked below `.cache`: no root, and nothing is installed.

They come with a C library and its loader of their own, under which this machine's Python runs, too.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

CACHE = Path(__file__).resolve().parents[2] / ".cache"
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
SOURCE = f"deb [signed-by={KEYS}] https://deb.debian.org/debian trixie main\n"


@dataclass(frozen=True)
class Unpacked:
    """A directory with the packages and all that they depend on."""

    path: Path

    @property
    def libraries(self) -> Path:
        return self.path / "usr/lib/x86_64-linux-gnu"

    def command(self, program: str) -> list[str]:
        """The beginning of a command that runs a program, of the packages or of this machine, on their libraries."""
        loader = self.libraries / "ld-linux-x86-64.so.2"
        return [str(loader), "--library-path", str(self.libraries), "--argv0", program, program]


def unpacked(name: str, *packages: str, alone: tuple[str, ...] = ()) -> Unpacked:
    """The packages, downloaded by apt the first time; skips the test where that is impossible.

    Those in `alone` come without what they depend on.
    """
    path = CACHE / name
    complete = path / "complete"
    wanted = " ".join((*packages, *alone))
    if complete.exists() and complete.read_text() == wanted:
        return Unpacked(path)
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None or not Path(KEYS).exists():
        pytest.skip(f"no apt and keys of Debian's to get {packages[0]} with")
    if subprocess.run(["dpkg", "--print-architecture"], capture_output=True, check=False).stdout != b"amd64\n":
        pytest.skip(f"{packages[0]} is taken for x86-64 only")
    shutil.rmtree(path, ignore_errors=True)
    apt = path / "apt"
    for directory in ("lists/partial", "archives/partial"):
        (apt / directory).mkdir(parents=True)
    (apt / "sources.list").write_text(SOURCE)
    (apt / "status").touch()  # nothing is installed: so everything is downloaded
    options = {
        "Dir::State": apt,
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt,
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "APT::Architecture": "amd64",
        "Acquire::https::Timeout": 30,
        "APT::Sandbox::User": "",  # none of apt's own, which may not write here
        "Debug::NoLocking": "true",
    }
    apt_get = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]
    commands = [["update"], ["install", "-y", "--no-install-recommends", "--download-only", *packages]]
    if alone:
        commands.append(["download", *alone])
    for command in commands:
        done = subprocess.run([*apt_get, *command], cwd=apt / "archives", capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"apt-get {command[0]} for {packages[0]}: {(done.stderr.strip() or 'failed').splitlines()[-1]}")
    for package in (apt / "archives").glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, path], check=True)
    shutil.rmtree(apt)
    complete.write_text(wanted)
    return Unpacked(path)


def lavapipe(directory: Path) -> tuple[list[str], dict[str, str]]:
    """How Python is started for a Vulkan that runs on the CPU, and in which environment; `directory` for its files."""
    mesa = unpacked("lavapipe", "mesa-vulkan-drivers", "libvulkan1")
    manifest = directory / "lavapipe.json"
    icd = {"library_path": str(mesa.libraries / "libvulkan_lvp.so"), "api_version": "1.3.0"}
    manifest.write_text(json.dumps({"file_format_version": "1.0.0", "ICD": icd}))
    python = mesa.command(sys.executable)
    if subprocess.run([*python, "-c", ""], capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine's Python does not run on Debian 13's C library")
    return python, {"VK_ICD_FILENAMES": str(manifest)}


def gstreamer(directory: Path) -> tuple[list[str], dict[str, str]]:
    """How `gst-launch-1.0` is started, and in which environment; `directory` for its files."""
    packages = ("gstreamer1.0-tools", "gstreamer1.0-plugins-base")
    tree = unpacked("gstreamer", *packages, alone=("gstreamer1.0-plugins-bad",))
    plugins = directory / "plugins"
    plugins.mkdir()
    for name in ("coreelements", "unixfd", "videotestsrc", "volume"):  # most others lack what they depend on
        plugin = f"libgst{name}.so"
        (plugins / plugin).symlink_to(tree.libraries / "gstreamer-1.0" / plugin)
    environment = {
        "GST_PLUGIN_SYSTEM_PATH_1_0": str(plugins),
        "GST_REGISTRY": str(directory / "registry"),
        "GST_REGISTRY_FORK": "no",
    }
    return tree.command(str(tree.path / "usr/bin/gst-launch-1.0")), environment
