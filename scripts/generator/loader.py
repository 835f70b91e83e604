"""The embedded loader's exports: every name of the API, forwarded to what its table of functions has."""

from __future__ import annotations

from .header import GUARD, Header
from .spec import Fact, Spec, version_number

COMMENT = GUARD.replace("/*", "//").replace(" */", "")
COMPONENTS = ("ze", "zes", "zet", "zer")

#: What a function answers that no driver has, by the type of its result.
MISSING = {
    "ze_result_t": "missing()",
    "uint32_t": "UINT32_MAX",
    "ze_device_handle_t": "nullptr",
    "ze_context_handle_t": "nullptr",
}
#: Written by hand in native/loader, because they find and initialize the drivers.
BY_HAND = ("zeInit", "zeInitDrivers", "zesInit")
#: The loader's own functions that are more than "not supported here".
ZEL_BY_HAND = (
    "zelLoaderGetVersions",
    "zelGetLoaderVersion",
    "zelLoaderTranslateHandle",
    "zelSetDriverTeardown",
    "zelCheckIsLoaderInTearDown",
    "zelSetDelayLoaderContextTeardown",
    "zelLoaderContextTeardown",
    "zelRegisterTeardownCallback",
    "zelGetTracingLayerState",
)


class Loader:
    """Writes `loader_tables.hpp` and `loader_exports.cpp`."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.header = Header(spec, integers=False, npu=False, components=(*COMPONENTS, "zel"))

    def tables(self) -> str:
        """One structure with all tables of a driver, how each is read, and the release whose interface this is."""
        tables = self.spec.tables(*COMPONENTS)
        members = "\n".join(f"  {t['name']} {_member(t['name'])};" for t in tables)
        getters = "\n".join(_table_getter(t) for t in tables)
        major, minor, patch = self.spec.core["loader_version"].split(".")
        return f"""\
{COMMENT}
#pragma once

#include <cstddef>

#include "level_zero.h"

struct Tables {{
{members}
}};

// How a table is read from a driver. Drivers may lack a getter; one that fails is fatal only when `required`.
struct TableGetter {{
  const char* name;
  ze_result_t (*read)(void* getter, void* table);
  size_t offset;
  size_t size;
  bool required;
}};

template <class Table>
ze_result_t read_table(void* getter, void* table) {{
  const auto get = reinterpret_cast<ze_result_t(ZE_APICALL*)(ze_api_version_t, Table*)>(getter);
  return get(ZE_API_VERSION_CURRENT, static_cast<Table*>(table));
}}

inline constexpr TableGetter table_getters[] = {{
{getters}
}};

// The release of the reference loader whose functions this one has.
inline constexpr zel_version_t interface_release = {{{major}, {minor}, {patch}}};
"""

    def _forward(self, function: Fact) -> str:
        arguments = ", ".join(p["name"] for p in function["params"])
        slot = f"tables.{_member(function['ddi_table'])}.{function['ddi_member']}"
        missing = MISSING[function["return"]]
        return (
            f"ZE_APIEXPORT {function['return']} ZE_APICALL {function['name']}({self.header.parameters(function)}) {{\n"
            f"  const auto forward = current({slot});\n"
            f"  return forward != nullptr ? forward({arguments}) : {missing};\n}}"
        )

    def _getter(self, table: Fact) -> str:
        """For statically linked loaders, which ask this one for its tables; never past the end of the caller's."""
        slots = "\n".join(f"  {self._since(m)}table->{m['name']} = {m['function']};" for m in table["members"])
        return f"""\
ZE_APIEXPORT ze_result_t ZE_APICALL {table["getter"]}(ze_api_version_t version, {table["name"]}* table) {{
  if (table == nullptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  if (ZE_MAJOR_VERSION(version) != 1) return ZE_RESULT_ERROR_UNSUPPORTED_VERSION;
{slots}
  return ZE_RESULT_SUCCESS;
}}"""

    def _since(self, slot: Fact) -> str:
        """The condition under which a caller's table has a slot; the loader's own table has all from the first on."""
        since = self.spec.function_by_name[slot["function"]]["since"]
        return f"if (version >= {version_number(since):#x}) " if since else ""

    def _declaration(self, function: Fact) -> str:
        return f"ZE_APIEXPORT {function['return']} ZE_APICALL {function['name']}({self.header.parameters(function)});"

    def _unsupported(self, function: Fact) -> str:
        params = ", ".join(p["type"] for p in function["params"]) or "void"
        answer = {"ze_result_t": " return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE; ", "bool": " return false; "}
        return (
            f"ZE_APIEXPORT {function['return']} ZE_APICALL {function['name']}({params}) "
            f"{{{answer.get(function['return'], '')}}}"
        )

    def exports(self) -> str:
        """Write what the library exports: forwards, tables' getters, refusals of the tracing that this loader lacks."""
        forwards = [self._forward(f) for f in self.spec.functions(*COMPONENTS) if f["name"] not in BY_HAND]
        refusals = [self._unsupported(f) for f in self.spec.loader_functions() if f["name"] not in ZEL_BY_HAND]
        getters = [self._getter(t) for t in self.spec.tables(*COMPONENTS, "zel")]
        by_hand = [self._declaration(f) for f in self.spec.functions(*COMPONENTS) if f["name"] in BY_HAND]
        return "\n".join(
            [
                COMMENT,
                '#include "driver_tables.hpp"',
                'extern "C" {',
                *by_hand,
                *forwards,
                *refusals,
                *getters,
                '}  // extern "C"',
                "",
            ]
        )


def _member(table: str) -> str:
    return table.removesuffix("_dditable_t")


def _table_getter(table: Fact) -> str:
    # What every driver since 1.0 has: the core tables that are no experiments.
    old_core = table["component"] == "ze" and table["getter_in_loader"]["1.8.12"]
    required = "true" if old_core and not table["name"].endswith("_exp_dditable_t") else "false"
    return (
        f'  {{"{table["getter"]}", read_table<{table["name"]}>, '
        f"offsetof(Tables, {_member(table['name'])}), sizeof({table['name']}), {required}}},"
    )
