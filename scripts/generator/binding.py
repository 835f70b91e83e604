"""The cffi module: C wrappers over a table of entry points, and what Python is told of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .header import GUARD, Header, cdef
from .spec import ROOT, Fact, Spec

if TYPE_CHECKING:
    from pathlib import Path

#: Components that reach `l0py.lib`. Adding `zes`, `zet` or `zer` here is all that they need.
COMPONENTS = ("ze",)

#: Of the loader's own functions, those a binding calls.
LOADER_FUNCTIONS = (
    "zelLoaderGetVersions",
    "zelGetLoaderVersion",
    "zelLoaderTranslateHandle",
    "zelCheckIsLoaderInTearDown",
)
LOADER_TYPES = """\
typedef struct zel_version { int major; int minor; int patch; } zel_version_t;
typedef struct zel_component_version {
  char component_name[64];
  ze_api_version_t spec_version;
  zel_version_t component_lib_version;
} zel_component_version_t;
"""

HAND_WRITTEN = ROOT / "l0py" / "native" / "binding"


class Binding:
    """Writes the wrappers and cffi's module source."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.header = Header(spec, integers=True, npu=True, components=COMPONENTS)
        by_name = spec.function_by_name
        self.functions: list[Fact] = spec.functions(*COMPONENTS) + [by_name[name] for name in LOADER_FUNCTIONS]

    def _parameters(self, function: Fact) -> str:
        # zel_handle_type_t is an enum that only the loader's own header has.
        return self.header.parameters(function).replace("zel_handle_type_t", "int")

    def prototypes(self) -> str:
        """One C prototype a function, as cffi and the C sources read them."""
        lines = [f"{f['return']} {f['name']}({self._parameters(f)});" for f in self.functions]
        return "\n".join(lines) + "\n"

    def api_header(self) -> str:
        """`binding_api.h`: entry point numbers and prototypes."""
        numbers = "\n".join(f"  L0_{f['name']}," for f in self.functions)
        return f"""\
{GUARD}
#pragma once

#include "level_zero_integers.h"
#include "entry_table.h"

{LOADER_TYPES}
enum {{
{numbers}
  L0_ENTRY_POINTS
}};

{self.prototypes()}"""

    def _wrapper(self, function: Fact) -> str:
        name, result = function["name"], function["return"]
        arguments = ", ".join(p["name"] for p in function["params"])
        refused = "return l0_refusal;" if result == "ze_result_t" else "return 0;"
        missing = "return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;" if result == "ze_result_t" else "return 0;"
        call = f"((pfn)l0_entry_points[L0_{name}])({arguments})"
        if name == "zeInit":
            call = f"l0_remember_init({call})"
        return f"""\
{result} {name}({self._parameters(function)}) {{
  typedef {result} (ZE_APICALL *pfn)({self._parameters(function)});
  if (l0_refusal != ZE_RESULT_SUCCESS) {refused}
  if (l0_entry_points[L0_{name}] == NULL) {missing}
  return {call};
}}
"""

    def api_source(self) -> str:
        """`binding_api.c`: the wrappers and the names that the table is filled by."""
        names = ",\n".join(f'  "{f["name"]}"' for f in self.functions)
        return "\n".join(
            [
                GUARD,
                '#include "binding_api.h"',
                "void* l0_entry_points[L0_ENTRY_POINTS];",
                f"const char* const l0_entry_names[L0_ENTRY_POINTS] = {{\n{names}\n}};",
                "const int l0_entry_count = L0_ENTRY_POINTS;",
                *[self._wrapper(f) for f in self.functions],
            ]
        )

    def module(self, target: Path) -> None:
        """Writes cffi's C source of `l0py._ffi`."""
        from cffi import FFI  # needed by the build alone

        ffi = FFI()
        ffi.cdef(cdef(self.header) + LOADER_TYPES + self.prototypes())
        includes = ['#include "binding_api.h"']
        for header in sorted(HAND_WRITTEN.glob("*.cdef.h")):
            ffi.cdef(hand_written_cdef(header))
            includes.append(f'#include "{header.name}"')
        ffi.set_source("l0py._ffi", "\n".join(includes))
        ffi.emit_c_code(str(target))


def hand_written_cdef(header: Path) -> str:
    """A hand-written `*.cdef.h` without the lines that only a compiler understands."""
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
