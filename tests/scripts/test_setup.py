"""The scripts around the build: what they do twice, at once, in odd places and where something is missing."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

ROOT = Path(__file__).resolve().parents[2]

PYTHON = """#!/bin/sh
case "$*" in
  *"pip install"*)
    echo "$*" >asked
    echo "start" >>installs
    sleep 0.3
    [ ! -e broken ] || exit 1
    echo "end" >>installs
    ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose .venv has a Python that only writes down what it would install."""
    root = tmp_path / "a place's $HOME"
    for name in ("scripts/setup", "scripts/lint", "scripts/test", "scripts/demo"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    for name in ("scripts/generator", "l0py/native", "l0py/spec", ".venv/bin"):
        (root / name).mkdir(parents=True)
    for name in (
        "pyproject.toml",
        "l0py/__init__.py",
        "CMakeLists.txt",
        "scripts/build_backend.py",
        "scripts/generate",
    ):
        (root / name).write_text("")
    python = root / ".venv/bin/python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    return root


def start(checkout: Path, *command: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=checkout,
        env={**os.environ, "PYTHON": sys.executable, **environment},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def set_up(checkout: Path, *arguments: str) -> int:
    """The exit status of scripts/setup."""
    process = start(checkout, "scripts/setup", *arguments)
    process.communicate()
    return process.returncode


def installs(checkout: Path) -> list[str]:
    """What was begun and ended, since the last question."""
    log = checkout / "installs"
    lines = log.read_text().split() if log.exists() else []
    log.write_text("")
    return lines


def test_it_installs_when_something_changed(checkout: Path) -> None:
    for _ in range(2):
        assert set_up(checkout) == 0
    assert installs(checkout) == ["start", "end"]
    assert set_up(checkout, "demo") == 0
    assert set_up(checkout, "test") == 0
    assert installs(checkout) == ["start", "end"]
    (checkout / "l0py/spec/new.json").write_text("{}")
    assert set_up(checkout, "demo") == 0
    assert installs(checkout) == ["start", "end"]
    (checkout / "l0py/spec/new.json").unlink()  # as it was for the first install, but not as it is built
    assert set_up(checkout, "test") == 0
    assert installs(checkout) == ["start", "end"]


def test_the_tests_get_their_peers(checkout: Path) -> None:
    for extra, wanted in (("test", ".[test,peers]"), ("demo", ".[demo]")):
        assert set_up(checkout, extra) == 0
        assert (checkout / "asked").read_text().split()[-1] == wanted


def test_a_failed_install_is_tried_again(checkout: Path) -> None:
    assert set_up(checkout) == 0
    (checkout / "pyproject.toml").write_text("changed")
    (checkout / "broken").touch()
    assert set_up(checkout) != 0
    (checkout / "broken").unlink()
    (checkout / "pyproject.toml").write_text("")
    installs(checkout)
    assert set_up(checkout) == 0
    assert installs(checkout) == ["start", "end"]


@pytest.mark.skipif(shutil.which("flock") is None, reason="this machine has no flock")
def test_two_at_once_take_turns(checkout: Path) -> None:
    both = [start(checkout, "scripts/setup", extra) for extra in ("test", "demo")]
    said = [one.communicate()[0] for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    assert installs(checkout) == ["start", "end", "start", "end"]
    assert "waiting for another scripts/setup" in "".join(said)
    begun = time.monotonic()
    assert set_up(checkout) == 0  # what the others left behind holds no lock
    assert time.monotonic() - begun < 5


def test_an_extra_that_does_not_exist(checkout: Path) -> None:
    process = start(checkout, "scripts/setup", "tset")
    assert "no extra 'tset'" in process.communicate()[0]
    assert process.returncode == 2
    assert installs(checkout) == []


def test_cdpath_leads_nobody_astray(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere/scripts").mkdir(parents=True)
    process = start(checkout, "scripts/demo", CDPATH=str(tmp_path / "elsewhere"))
    assert process.communicate()[0].count("setup:") == 1
    assert process.returncode == 0
    assert installs(checkout) == ["start", "end"]


def test_lint_before_setup(checkout: Path) -> None:
    process = start(checkout, "scripts/lint", "--check")
    assert "run scripts/setup first" in process.communicate()[0]
    assert process.returncode == 1


@pytest.fixture
def build_backend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """scripts/build_backend.py in a place of its own."""
    monkeypatch.setitem(sys.modules, "scikit_build_core", MagicMock())  # which only build environments have
    path = tmp_path / "it's $HOME" / "scripts" / "build_backend.py"
    path.parent.mkdir(parents=True)
    shutil.copy(ROOT / "scripts/build_backend.py", path)
    spec = importlib.util.spec_from_file_location("build_backend_copy", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("CC", "CXX", "ZIG_GLOBAL_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", str(tmp_path))
    return module


def test_zig_stands_in_for_a_compiler(build_backend: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / "it's a $PYTHON"
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("HOME", str(tmp_path))
    build_backend._use_zig()
    said = subprocess.run([os.environ["CXX"], "-c", "a b.cpp"], capture_output=True, text=True, check=True).stdout
    assert said == "-m ziglang c++ -c a b.cpp\n"
    assert "ZIG_GLOBAL_CACHE_DIR" not in os.environ


def test_zig_without_a_home(build_backend: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    build_backend._use_zig()
    cache = Path(os.environ["ZIG_GLOBAL_CACHE_DIR"])
    assert cache.is_relative_to(tmp_path / "it's $HOME")
