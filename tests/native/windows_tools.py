"""A compiler for Windows and Wine: this system's, or Debian's packages unpacked below .cache, which takes no root."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "windows"
TARGET = "x86_64-w64-mingw32"
#: With what they need beyond what every Debian has; a compiler's libraries are there where a compiler is.
PACKAGES = (
    "binutils-mingw-w64-x86-64", "mingw-w64-common", "mingw-w64-x86-64-dev", "gcc-mingw-w64-base",
    "gcc-mingw-w64-x86-64-posix", "gcc-mingw-w64-x86-64-posix-runtime", "g++-mingw-w64-x86-64-posix",
    "libgmp10", "libisl23", "libmpc3", "libmpfr6",
    "wine64", "libwine", "libunwind8", "libz-mingw-w64",
)  # fmt: skip
#: Of no use here, and large: Wine copies all its libraries into every prefix.
UNUSED = ("usr/share/doc", "usr/i686-w64-mingw32", "usr/lib/x86_64-linux-gnu/wine/i386-windows")


class Unavailable(Exception):
    """There is no such compiler, or no Wine; the text says why."""


@dataclass(frozen=True)
class Tools:
    """Where the programs are, and where their libraries, when they were unpacked."""

    programs: Path
    suffix: str
    wine: Path
    wineserver: Path
    tree: Path | None = None

    def program(self, name: str) -> str:
        """A program of the compiler's: gcc and g++ exist for two kinds of threads, the others once."""
        return str(self.programs / f"{TARGET}-{name}{self.suffix if name in ('gcc', 'g++') else ''}")

    def environment(self, prefix: Path) -> dict[str, str]:
        """For Wine, silent and without looking for a browser or a .NET."""
        quiet = {"WINEDEBUG": "-all", "WINEDLLOVERRIDES": "mscoree,mshtml,winemenubuilder.exe="}
        libraries = {"LD_LIBRARY_PATH": str(self.tree / "usr/lib/x86_64-linux-gnu")} if self.tree else {}
        return os.environ | libraries | quiet | {"WINEPREFIX": str(prefix), "WINESERVER": str(self.wineserver)}


def find_tools() -> Tools:
    """Raises `Unavailable`."""
    compiler = next((found for kind in ("-posix", "") if (found := shutil.which(f"{TARGET}-g++{kind}"))), None)
    wine = shutil.which("wine64")
    server = shutil.which("wineserver")
    if compiler and wine and server:
        suffix = "-posix" if compiler.endswith("-posix") else ""
        return Tools(Path(compiler).parent, suffix, Path(wine), Path(server))
    tree = CACHE / "tree"
    _unpack(tree)
    wine_directory = tree / "usr/lib/wine"
    return Tools(tree / "usr/bin", "-posix", wine_directory / "wine64", wine_directory / "wineserver64", tree)


def _unpack(tree: Path) -> None:
    complete = tree.with_suffix(".complete")
    wanted = "\n".join(PACKAGES)
    if complete.exists() and complete.read_text() == wanted:
        return
    for needed in ("apt-get", "dpkg-deb"):
        if shutil.which(needed) is None:
            raise Unavailable(f"no {TARGET}-g++ and wine64, and no {needed} to get them")
    downloads = CACHE / "downloads"
    for directory in (tree, downloads):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
    _download(downloads)
    for package in sorted(downloads.glob("*.deb")):
        _run(["dpkg-deb", "-x", str(package), str(tree)], f"unpacking {package.name}")
    shutil.rmtree(downloads)
    for unused in UNUSED:
        shutil.rmtree(tree / unused, ignore_errors=True)
    server = tree / "usr/lib/wine/wineserver"
    server.unlink()  # a script that knows absolute paths alone
    server.symlink_to("wineserver64")
    complete.write_text(wanted)


def _download(directory: Path) -> None:
    command = ["apt-get", "download", "-qq", *PACKAGES]
    try:
        _run(command, "downloading", directory=directory)
    except Unavailable:
        if os.geteuid() != 0:  # who alone may bring the lists of packages up to date
            raise
        _run(["apt-get", "update", "-qq"], "updating the lists of packages")
        _run(command, "downloading", directory=directory)


def _run(command: list[str], what: str, *, directory: Path | None = None) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise Unavailable(f"{what} failed: {' '.join(last) or done.returncode}")


@contextmanager
def windows(tools: Tools) -> Iterator[dict[str, str]]:
    """The environment of a running Wine, whose server ends with the block. Raises `Unavailable`."""
    prefix = CACHE / "prefix"
    environment = tools.environment(prefix)
    libraries = prefix / "drive_c/windows/system32"
    libraries.mkdir(parents=True, exist_ok=True)
    if tools.tree:  # Debian's Wine looks for this one where a package installs it
        shutil.copy(tools.tree / f"usr/{TARGET}/lib/zlib1.dll", libraries)
    try:
        # Kept until the end: else every program waits for a server that comes and goes. It has its own files for what
        # it says, and so has all that it starts: those who wait for the end of a pipe would wait for its end.
        _start([str(tools.wineserver), "-p"], environment)
        _start([str(tools.wine), "wineboot", "--update"], environment)
        yield environment
    finally:
        subprocess.run([str(tools.wineserver), "-k"], env=environment, timeout=60, check=False, **_NOWHERE)


_NOWHERE = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def _start(command: list[str], environment: dict[str, str]) -> None:
    try:
        done = subprocess.run(command, env=environment, timeout=180, check=False, **_NOWHERE)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"Wine does not start: {error}") from error
    if done.returncode != 0:
        raise Unavailable(f"Wine does not start: {Path(command[0]).name} ended with {done.returncode}")
