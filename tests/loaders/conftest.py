"""Loaders and drivers that are not ours."""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from trees import Tree, Unavailable, make_tree

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"

#: Debian 12's loader, the newest of those that OpenVINO cannot use. Its package needs no root to be unpacked.
DEBIAN12_PACKAGE = "https://deb.debian.org/debian/pool/main/l/level-zero/libze1_1.8.12-1_amd64.deb"
DEBIAN12_SHA256 = "403b3e3821a3e2dfdc8e6392300350943de2f66d1ada1dc551f8d5ac175ef944"

CompileDriver = Callable[..., Path]


def compiler() -> list[str]:
    """A C compiler's command; skips when there is none."""
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return [found]
    if subprocess.run([sys.executable, "-c", "import ziglang"], capture_output=True, check=False).returncode == 0:
        return [sys.executable, "-m", "ziglang", "cc"]
    pytest.skip("no C compiler to build a second driver with")


@pytest.fixture(scope="session")
def embedded_loader() -> Path:
    loader = pytest.importorskip("l0py.loader")
    return Path(loader.embedded_path())


@pytest.fixture(scope="session")
def software_driver() -> Path:
    softdriver = pytest.importorskip("l0py.softdriver")
    return Path(softdriver.path())


@pytest.fixture(scope="session")
def level_zero_header(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the generated `level_zero.h`."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from generator.header import Header
        from generator.spec import Spec
    finally:
        sys.path.pop(0)
    directory = tmp_path_factory.mktemp("include")
    text = Header(Spec(), integers=False, npu=True, components=("ze", "zes", "zet", "zer", "zel")).text(tables=True)
    (directory / "level_zero.h").write_text(text)
    return directory


@pytest.fixture(scope="session")
def compile_driver(level_zero_header: Path, tmp_path_factory: pytest.TempPathFactory) -> CompileDriver:
    """Compiles `second_driver.c` with macros: `compile_driver(TYPES=2)`. The same macros give the same file."""
    directory = tmp_path_factory.mktemp("drivers")
    command = compiler()

    def compile_one(**macros: int | str) -> Path:
        defines = [f"-D{name}={value}" for name, value in sorted(macros.items())]
        library = directory / f"libsecond{'_'.join(defines) or '_plain'}.so".replace("-D", "").replace("=", "_")
        if not library.exists():
            flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{level_zero_header}"]
            source = Path(__file__).with_name("second_driver.c")
            subprocess.run([*command, *flags, *defines, str(source), "-o", str(library)], check=True)
        return library

    return compile_one


@pytest.fixture(scope="session")
def second_driver(compile_driver: CompileDriver) -> Path:
    return compile_driver()


@pytest.fixture(scope="session")
def debian12_loader() -> Path:
    """Loader 1.8.12 with its layers beside it, unpacked from Debian 12's package."""
    directory = CACHE / "libze1_1.8.12"
    loader = directory / "usr" / "lib" / "x86_64-linux-gnu" / "libze_loader.so.1"
    if platform.machine() != "x86_64":
        pytest.skip("Debian 12's loader is for x86-64")
    if not loader.exists():
        try:
            with urllib.request.urlopen(DEBIAN12_PACKAGE, timeout=60) as answer:
                package = answer.read()
        except OSError as error:
            pytest.skip(f"Debian 12's loader cannot be downloaded: {error}")
        assert hashlib.sha256(package).hexdigest() == DEBIAN12_SHA256
        if shutil.which("dpkg-deb") is None:
            pytest.skip("no dpkg-deb to unpack Debian 12's loader with")
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "package.deb").write_bytes(package)
        subprocess.run(["dpkg-deb", "-x", directory / "package.deb", directory], check=True)
    return loader


@pytest.fixture(scope="session")
def trixie() -> Tree:
    """A Debian 13 tree with loader 1.20 and the project installed."""
    try:
        return make_tree()
    except Unavailable as error:
        pytest.skip(str(error))
