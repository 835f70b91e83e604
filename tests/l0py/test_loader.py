from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import l0py
from l0py import loader

WHICH = """
import json
from l0py import loader
info = loader.info()
print(json.dumps(info._asdict() | {"version": info.version}))
"""

#: A loader of long ago: it has zeInit and little else.
OLD_LOADER = """
int zeInit(unsigned flags) { return flags == 0 ? 0 : 0x78000004; }
int zeDriverGet(unsigned* count, void** drivers) { (void)drivers; *count = 0; return 0; }
"""


@pytest.fixture(scope="session")
def old_loader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    directory = tmp_path_factory.mktemp("loader")
    (directory / "old.c").write_text(OLD_LOADER)
    library = directory / "libze_loader.so.1"
    command = [compiler, "-shared", "-fPIC", "-Wl,-soname,libze_loader.so.1", "-o", str(library)]
    subprocess.run([*command, str(directory / "old.c")], check=True)
    return library


def test_one_loader_is_bound_and_says_why() -> None:
    l0py.drivers()
    info = loader.info()
    assert info is loader.bind()
    assert info.source in ("override", "process", "system", "embedded")
    assert info.reason
    assert Path(info.path).exists()
    assert info.functions > 60


def test_the_embedded_loader_and_the_driver_are_there() -> None:
    assert loader.embedded_path().exists()
    assert loader.software_driver_path().exists()
    assert loader.embedded_path().parent == loader.native_dir()


def test_an_override_is_taken_as_it_is(python: Any, old_loader: Path) -> None:
    told = json.loads(python(WHICH, L0PY_LOADER=str(old_loader)).stdout)
    assert (told["source"], told["path"]) == ("override", str(old_loader))
    assert told["functions"] == 2
    assert told["version"] == "unknown"


@pytest.mark.parametrize("wrong", ["/nonexistent/libze_loader.so.1", "libc.so.6", "/etc/passwd", "/"])
def test_an_override_that_is_no_loader(python: Any, wrong: str) -> None:
    script = """
import l0py
for call in (l0py.find_device, lambda: l0py.lib.zeInit, lambda: l0py.lib.has("zeInit")):
    try:
        call()
    except OSError as error:
        assert isinstance(error, l0py.LoaderNotFound)
        print(error)
    else:
        raise SystemExit("no error")
"""
    done = python(script, L0PY_LOADER=wrong)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(wrong) >= 3


def test_a_loader_that_is_in_the_process_is_taken(python: Any, old_loader: Path) -> None:
    script = f"import ctypes; ctypes.CDLL({str(old_loader)!r})\n{WHICH}"
    assert json.loads(python(script, L0PY_LOADER=None).stdout)["source"] == "process"


def test_a_system_loader_that_is_too_old_gives_way(python: Any, old_loader: Path) -> None:
    told = json.loads(python(WHICH, L0PY_LOADER=None, LD_LIBRARY_PATH=str(old_loader.parent)).stdout)
    assert told["source"] == "embedded"
    assert str(old_loader) in told["reason"]
    assert "zeCommandListHostSynchronize" in told["reason"]


def test_no_loader_at_all(python: Any) -> None:
    script = """
from pathlib import Path
from l0py import loader
import l0py
loader.embedded_path = lambda: Path("/nonexistent/libze_loader.so.1")
try:
    l0py.find_device()
except l0py.LoaderNotFound as error:
    print(error)
"""
    done = python(script, L0PY_LOADER=None, LD_LIBRARY_PATH=None)
    if "no loader is installed" not in done.stdout:
        pytest.skip("this machine has a loader installed")
    assert "the embedded one cannot be opened" in done.stdout


def test_a_function_that_the_loader_lacks(python: Any, old_loader: Path) -> None:
    script = """
import l0py
from l0py import lib
assert lib.has("zeInit") and not lib.has("zeMemAllocHost")
function = lib.zeMemAllocHost  # the name is there: only calling it fails
for _ in range(2):
    try:
        function(0, lib.ffi.NULL, 1, 1, lib.ffi.NULL)
    except NotImplementedError as error:
        assert isinstance(error, l0py.FunctionMissing)
        print(error)
try:
    l0py.drivers()
except l0py.NoDriver as error:
    print(error)
"""
    done = python(script, L0PY_LOADER=str(old_loader))
    assert done.returncode == 0, done.stderr
    first, second, third = done.stdout.splitlines()
    assert first == second
    for part in ("zeMemAllocHost", str(old_loader), "version unknown", "specification 1.0"):
        assert part in first
    assert "L0PY_SOFTDRIVER=1" in third


def test_the_software_driver_joins_those_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(loader.software_driver_path())
    monkeypatch.setenv("ZE_ENABLE_ALT_DRIVERS", "/one.so,/two.so")
    for _ in range(2):
        loader.add_software_drivers("npu")
        assert loader.os.environ["ZE_ENABLE_ALT_DRIVERS"] == f"/one.so,/two.so,{path}"
    loader.add_software_drivers("gpu", "npu")
    assert loader.os.environ["ZE_ENABLE_ALT_DRIVERS"] == f"/one.so,/two.so,{path},{loader.software_driver_path('gpu')}"


@pytest.mark.parametrize(
    ("said", "wanted"),
    [("", None), ("0", ()), ("1", ("npu",)), ("gpu", ("gpu",)), ("npu,gpu", ("npu", "gpu"))],
)
def test_what_the_environment_says(monkeypatch: pytest.MonkeyPatch, said: str, wanted: tuple[str, ...] | None) -> None:
    monkeypatch.setenv("L0PY_SOFTDRIVER", said)
    assert loader.software_drivers_wanted() == wanted
    monkeypatch.delenv("L0PY_SOFTDRIVER")
    assert loader.software_drivers_wanted() is None


@pytest.mark.parametrize("said", ["yes", "npu,", "1,gpu"])
def test_what_the_environment_cannot_say(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setenv("L0PY_SOFTDRIVER", said)
    with pytest.raises(l0py.InvalidArgument, match=f"L0PY_SOFTDRIVER={said}"):
        loader.software_drivers_wanted()
