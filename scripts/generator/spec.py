"""The facts about Level Zero, read once and put in the order that C wants."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
SPEC_DIR = ROOT / "l0py" / "spec"

Fact = dict[str, Any]

#: What the NPU extension tables are called in faults, records and C++ names.
NPU_TABLES = {
    "ze_graph_dditable_ext_t": "graph",
    "ze_graph_profiling_dditable_ext_t": "profiling",
    "ze_command_queue_npu_dditable_ext_t": "command_queue",
    "ze_context_npu_dditable_ext_t": "context",
    "ze_driver_npu_dditable_ext_t": "driver",
}


def version_number(text: str) -> int:
    """`"1.17"` as the specification packs it: major in the upper half."""
    major, minor = text.split(".")
    return int(major) << 16 | int(minor)


class Spec:
    """Level Zero and the NPU extensions, as data."""

    def __init__(self) -> None:
        self.core: Fact = json.loads((SPEC_DIR / "level_zero.json").read_text())
        self.npu: Fact = json.loads((SPEC_DIR / "npu_extensions.json").read_text())

    def functions(self, *components: str) -> list[Fact]:
        """The API's functions, in the order of the specification."""
        return [f for f in self.core["functions"] if f["component"] in components]

    def loader_functions(self) -> list[Fact]:
        """The `zel` functions: the loader answers them itself."""
        return list(self.core["loader_functions"])

    @cached_property
    def function_by_name(self) -> dict[str, Fact]:
        """Every function, the loader's own too."""
        every = self.core["functions"] + self.core["loader_functions"]
        return {f["name"]: f for f in every}

    def tables(self, *components: str) -> list[Fact]:
        """The driver's function tables; a slot knows its function."""
        return [t for t in self.core["ddi_tables"] if t["component"] in components]

    def npu_functions(self) -> Iterator[tuple[str, Fact]]:
        """Every slot of the NPU extension tables, with its C++ name."""
        for table in self.npu["ddi_tables"]:
            for member in table["members"]:
                yield f"{NPU_TABLES[table['name']]}_{member['name']}", member

    def all(self, kind: str, *, npu: bool) -> list[Fact]:
        """Core facts of a kind, then those the NPU extensions add."""
        extra = self.npu[kind] if npu else []
        return list(self.core[kind]) + [f for f in extra if not f.get("in_core")]

    def structs(self, *, npu: bool) -> list[Fact]:
        """Structures and unions, each after those it holds by value."""
        facts = {s["name"]: s for s in self.all("structs", npu=npu)}
        done: dict[str, Fact] = {}

        def visit(name: str) -> None:
            if name in done or name not in facts:
                return
            for member in facts[name]["members"]:
                visit(member["type"].removeprefix("const "))
            done[name] = facts[name]

        for name in facts:
            visit(name)
        return list(done.values())
