"""What the native tests compare the compiled declarations with: layouts, and the versions of table slots."""

from __future__ import annotations

from .header import GUARD
from .softdriver import COMPONENTS
from .spec import Fact, Spec, version_number


def _layout(struct: Fact) -> list[str]:
    name = struct["name"]
    lines = [
        f'_Static_assert(sizeof({name}) == {struct["size"]}, "size of {name}");',
        f'_Static_assert(_Alignof({name}) == {struct["align"]}, "alignment of {name}");',
    ]
    for member in struct["members"]:
        path = f"{name}.{member['name']}"
        lines.append(f'_Static_assert(offsetof({name}, {member["name"]}) == {member["offset"]}, "offset of {path}");')
    return lines


class Checks:
    """Writes `layout_checks.c` and `table_slots.hpp`."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def layouts(self) -> str:
        """Compiles only where every structure is laid out as in the facts, which are those of 64-bit systems."""
        # C has no empty structures; the few that the facts have are never passed to anything.
        structs = [s for s in self.spec.structs(npu=True) if s["size"]]
        lines = [line for struct in structs for line in _layout(struct)]
        return "\n".join([GUARD, '#include "level_zero.h"', "#if UINTPTR_MAX == UINT64_MAX", *lines, "#endif"]) + "\n"

    def slots(self) -> str:
        """For each table of the driver: the API version that brought each slot."""
        tables = []
        for table in self.spec.tables(*COMPONENTS):
            since = [version_number(self.spec.function_by_name[m["function"]]["since"]) for m in table["members"]]
            numbers = ", ".join(f"{number:#x}" for number in since)
            tables.append(f'    {{"{table["getter"]}", {len(since)}, {{{numbers}}}}},')
        longest = max(len(table["members"]) for table in self.spec.tables(*COMPONENTS))
        guard = GUARD.replace("/*", "//").replace(" */", "")
        return f"""\
{guard}
#pragma once

#include <cstddef>
#include <cstdint>

struct TableSlots {{
  const char* getter;
  size_t count;
  uint32_t since[{longest}];
}};

inline constexpr TableSlots table_slots[] = {{
{chr(10).join(tables)}
}};
"""
