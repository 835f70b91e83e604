"""Every page of the guide is run: its Python blocks, one after another, in one process on the software driver."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from debian_packages import gstreamer, lavapipe
from example_helpers import run_example, save_model
from peer_helpers import intel_opencl

if TYPE_CHECKING:
    from collections.abc import Iterator

GUIDE = Path(__file__).resolve().parents[1] / "docs" / "guide"
PAGES = sorted(path.name for path in GUIDE.glob("*.md"))
#: What a page says in its first line that it needs besides the project itself: modules, or programs that are unpacked.
NEEDS = re.compile(r"<!-- needs: (.+) -->")
PROGRAMS = ("gst-launch-1.0", "lavapipe")


def needs(page: str) -> list[str]:
    first, _, _ = page.partition("\n")
    found = NEEDS.fullmatch(first)
    return re.split(r",\s*", found[1]) if found else []


def script(page: str) -> str:
    """The page's Python on its own lines, so that errors tell the line of the page."""

    def lines() -> Iterator[str]:
        inside = False
        for line in page.splitlines():
            if line == "```python" or (inside and line == "```"):
                inside = not inside
                yield ""
            else:
                yield line if inside else ""

    return "\n".join(lines()) + "\n"


@pytest.mark.parametrize("name", PAGES)
def test_what_is_not_run_is_python_at_least(name: str) -> None:
    page = (GUIDE / name).read_text(encoding="utf-8")
    fences = re.findall(r"^```(.*)\n((?:.*\n)*?)```$", page, re.MULTILINE)
    assert {language for language, _ in fences} <= {"python", "python no-run", "c"}
    for language, block in fences:
        if language == "python no-run":
            compile(block, name, "exec")


@pytest.mark.parametrize("name", PAGES)
def test_page(name: str, tmp_path: Path) -> None:
    page = (GUIDE / name).read_text(encoding="utf-8")
    code = script(page)
    if not code.strip():
        assert "```python" not in page
        return
    wanted = needs(page)
    for module in set(wanted) - set(PROGRAMS):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed (extra `peers`)")
    python, environment = [sys.executable], {}
    if "dpctl" in wanted:
        environment = intel_opencl()
    if "lavapipe" in wanted:
        python, environment = lavapipe(tmp_path)
    if "gst-launch-1.0" in wanted:
        command, environment = gstreamer(tmp_path)
        (tmp_path / "gst-launch-1.0").write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        (tmp_path / "gst-launch-1.0").chmod(0o755)
        environment["PATH"] = f"{tmp_path}:/usr/bin:/bin"
    save_model(tmp_path)
    run_example(code, tmp_path, python, environment)


def test_the_index_names_every_page() -> None:
    index = (GUIDE / "index.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\((\S+\.md)\)", index)) == set(PAGES) - {"index.md"}
