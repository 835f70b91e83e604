"""What the compiled module believes of Level Zero, against the data that it was generated from."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from l0py import _enums, lib
from l0py._ffi import ffi
from l0py._ffi import lib as compiled
from l0py._functions import SINCE

ROOT = Path(__file__).resolve().parents[1]
CORE = json.loads((ROOT / "l0py/spec/level_zero.json").read_text())
NPU = json.loads((ROOT / "l0py/spec/npu_extensions.json").read_text())


def facts(kind: str) -> list[dict[str, Any]]:
    """Facts of the core API and the NPU's extensions, the components that reach Python."""
    return [fact for fact in CORE[kind] if fact["component"] == "ze"] + list(NPU[kind])


STRUCTS = {struct["name"]: struct for struct in facts("structs")}
ENUMS = {enum["name"]: enum for enum in facts("enums")}
FUNCTIONS = {function["name"] for function in CORE["functions"] if function["component"] == "ze"}


def test_every_function_reaches_the_raw_layer() -> None:
    assert len(FUNCTIONS) == 248
    assert set(SINCE) >= FUNCTIONS
    for name in FUNCTIONS:
        assert callable(getattr(compiled, name))
        assert callable(getattr(lib, name))
        assert isinstance(lib.has(name), bool)


@pytest.mark.parametrize("name", STRUCTS)
def test_sizes_and_offsets(name: str) -> None:
    struct = STRUCTS[name]
    if struct.get("size") is None:
        pytest.skip("the facts have no size")
    assert ffi.sizeof(name) == struct["size"]
    assert ffi.alignof(name) == struct["align"]
    fields = dict(ffi.typeof(name).fields or [])
    assert list(fields) == [member["name"] for member in struct["members"]]
    for member in struct["members"]:
        if member.get("offset") is not None:
            assert fields[member["name"]].offset == member["offset"], member["name"]


@pytest.mark.parametrize("name", ENUMS)
def test_enumerators(name: str) -> None:
    known = getattr(_enums, name)
    for value in ENUMS[name]["values"]:
        assert getattr(lib, value["name"]) == value["value"]
        if "FORCE_UINT32" not in value["name"] and not value["name"].endswith("_CURRENT"):
            assert value["value"] in known


def test_what_was_generated_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "scripts/generate"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_stub_has_every_name() -> None:
    stub = (ROOT / "l0py/lib.pyi").read_text()
    assert set(re.findall(r"^def (ze\w+)\(", stub, re.MULTILINE)) >= FUNCTIONS
    constants = set(re.findall(r"^(\w+): int$", stub, re.MULTILINE))
    missing = {v["name"] for enum in ENUMS.values() for v in enum["values"]} - constants
    assert not missing
