"""The software drivers' entry points: a trampoline for each function, and the tables that loaders ask for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .header import GUARD, Header
from .spec import NPU_TABLES, ROOT, Fact, Spec, version_number

if TYPE_CHECKING:
    from pathlib import Path

SOURCES = ROOT / "l0py" / "native" / "softdriver"
IMPLEMENTATION = re.compile(r"^(?:\w+) api::(\w+)\(", re.MULTILINE)
COMPONENTS = ("ze", "zes", "zet")
#: Each has a library of its own: the sources that all share, and those of the directory of its name.
DRIVERS = ("npu", "gpu")


def implemented(driver: str) -> set[str]:
    """The functions that a driver's hand-written sources define."""
    names: set[str] = set()
    for source in sorted([*SOURCES.glob("*.cpp"), *(SOURCES / driver).glob("*.cpp")]):
        names.update(IMPLEMENTATION.findall(source.read_text()))
    return names


def _call(function: Fact) -> str:
    return ", ".join(p["name"] for p in function["params"])


def _entry(name: str, function: Fact, params: str, *, is_implemented: bool) -> str:
    """One trampoline; what is not implemented, or newer than what is imitated, says so to the caller and the record."""
    arguments = _call(function)
    if function["return"] != "ze_result_t":
        body = f"return api::{name}({arguments});" if is_implemented else "return {};"
        return f"{function['return']} ZE_APICALL entry_{name}({_unused(params, is_implemented)}) {{ {body} }}"
    body = f"return api::{name}({arguments});" if is_implemented else "return unsupported();"
    capture = "&" if is_implemented and arguments else ""
    recorded = f", {arguments}" if arguments else ""
    return (
        f"ze_result_t ZE_APICALL entry_{name}({params}) {{\n"
        f"  return enter(Function::{name}, {_since(function):#x}, "
        f"[{capture}]() -> ze_result_t {{ {body} }}{recorded});\n}}"
    )


def _since(function: Fact) -> int:
    """The API version that brought a function; 0 for those of the NPU's extensions."""
    return version_number(function["since"]) if function.get("component") else 0


def _unused(params: str, is_implemented: bool) -> str:
    return params if is_implemented or params == "void" else re.sub(r" \w+(,|$)", r"\1", params)


class Softdriver:
    """Writes `softdriver_functions.hpp` and the entries of each driver: `npu_entries.cpp`, `gpu_entries.cpp`."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.header = Header(spec, integers=False, npu=True, components=COMPONENTS)
        self.functions: dict[str, Fact] = {f["name"]: f for f in spec.functions(*COMPONENTS)}
        self.functions.update(spec.npu_functions())

    def functions_header(self) -> str:
        """Numbers and names of all functions, and prototypes of their implementations."""
        names = ",\n".join(f"  {name}" for name in self.functions)
        prototypes = "\n".join(
            f"{f['return']} {name}({self.header.parameters(f)});" for name, f in self.functions.items()
        )
        strings = ",\n".join(f'  "{name}"' for name in self.functions)
        return f"""\
{GUARD.replace("/*", "//").replace(" */", "")}
#pragma once

#include <cstdint>

#include "level_zero.h"

namespace softdriver {{

enum class Function : uint16_t {{
{names},
  count_of_functions
}};

inline constexpr const char* function_names[] = {{
{strings}
}};

namespace api {{
{prototypes}
}}  // namespace api

}}  // namespace softdriver
"""

    def _slots(self, table: Fact) -> str:
        lines = []
        for member in table["members"]:
            since = version_number(self.spec.function_by_name[member["function"]]["since"])
            lines.append(f"  if (version >= {since:#x}) table->{member['name']} = entry_{member['function']};")
        return "\n".join(lines)

    def _getter(self, table: Fact) -> str:
        """Fills a loader's table, never past the end that the loader's version has."""
        return f"""\
ZE_APIEXPORT ze_result_t ZE_APICALL {table["getter"]}(ze_api_version_t version, {table["name"]}* table) {{
  if (table == nullptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  if (ZE_MAJOR_VERSION(version) != 1) return ZE_RESULT_ERROR_UNSUPPORTED_VERSION;
{self._slots(table)}
  return ZE_RESULT_SUCCESS;
}}"""

    def _npu_table(self, table: Fact) -> str:
        slots = ", ".join(f"entry_{_npu_name(table, m)}" for m in table["members"])
        return (
            f"  static {table['name']} {_variable(table)} = {{{slots}}};\n"
            f'  if (std::strcmp(name, "{table["extension"]}") == 0) return &{_variable(table)};'
        )

    def entries(self, driver: str) -> str:
        """A driver's trampolines, the loaders' getters and, for the NPU's, the extension tables."""
        defined = implemented(driver)
        unknown = sorted(defined - set(self.functions))
        if unknown:
            raise SystemExit(f"softdriver sources define functions that the specification lacks: {', '.join(unknown)}")
        trampolines = "\n".join(
            _entry(name, f, self.header.parameters(f), is_implemented=name in defined)
            for name, f in self.functions.items()
            if f.get("component") or driver == "npu"
        )
        getters = "\n".join(self._getter(t) for t in self.spec.tables(*COMPONENTS))
        extensions = "\n".join(self._npu_table(t) for t in self.spec.npu["ddi_tables"] if driver == "npu")
        lookups = "\n".join(
            f'  if (std::strcmp(name, "{name}") == 0) return reinterpret_cast<void*>(entry_{name});'
            for name, f in self.functions.items()
            if f.get("component") and name in defined
        )
        return f"""\
{GUARD.replace("/*", "//").replace(" */", "")}
#include <cstring>

#include "entry.hpp"
#include "tables.hpp"

namespace softdriver {{
namespace {{

{trampolines}

}}  // namespace

void* extension_table({"[[maybe_unused]] " if driver == "gpu" else ""}const char* name) noexcept {{
{extensions}
  return nullptr;
}}

void* entry_point(const char* name) noexcept {{
{lookups}
  return nullptr;
}}

}}  // namespace softdriver

using namespace softdriver;

extern "C" {{

{getters}

}}  // extern "C"
"""


def _npu_name(table: Fact, member: Fact) -> str:
    return f"{NPU_TABLES[table['name']]}_{member['name']}"


def _variable(table: Fact) -> str:
    return f"{NPU_TABLES[table['name']]}_table"


def write_if_changed(path: Path, text: str) -> None:
    """Keeps the time stamp of what is the same, so that nothing is compiled twice."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
