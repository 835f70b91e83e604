"""The embedded loader's way to one of several drivers: for each function, one that looks whose its handles are."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING

from .header import GUARD, Header

if TYPE_CHECKING:
    from .spec import Fact, Spec

COMPONENTS = ("ze", "zes", "zet", "zer")

#: Exported by hand: they find the drivers, and no table is asked for them.
NOT_ROUTED = ("zeInit", "zeInitDrivers", "zesInit")
#: Written by hand in native/loader/routes.cpp: they ask every driver, the first one, or two.
BY_HAND = (
    "zeDriverGet",
    "zesDriverGet",
    "zeDeviceCanAccessPeer",
    "zerGetLastErrorDescription",
    "zerTranslateDeviceHandleToIdentifier",
    "zerTranslateIdentifierToDeviceHandle",
    "zerGetDefaultContext",
)
#: Outputs that say nothing about who gave the handle out: one that some drivers leave as the caller had it, and a
#: list that the function only puts in another order.
NOT_LEARNED = (("zeMemGetAllocProperties", "phDevice"), ("zetDeviceGetConcurrentMetricGroupsExp", "phMetricGroups"))
#: Counts that the facts do not tie to their list.
COUNTED_BY = {
    ("zetDeviceCreateMetricGroupsFromMetricsExp", "phMetrics"): "metricCount",
    ("zetCommandListAppendMetricQueryEnd", "phWaitEvents"): "numWaitEvents",
}
BUILD_LOG = "ze_module_build_log_handle_t*"
DESTROYING = re.compile("Destroy|Release")


class Routes:
    """Writes `loader_routes.cpp`."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.header = Header(spec, integers=False, npu=False, components=(*COMPONENTS, "zel"))
        self.functions = [f for f in spec.functions(*COMPONENTS) if f["name"] not in NOT_ROUTED]

    @cached_property
    def _handles(self) -> set[str]:
        return {h["name"] for h in self.spec.core["handles"]}

    def _is_list(self, param: Fact) -> bool:
        """A pointer to handles: given, taken, or a place for one."""
        kind: str = param["type"]
        return kind.endswith("*") and kind.removeprefix("const ").removesuffix("*") in self._handles

    def _count(self, function: Fact, param: Fact) -> str | None:
        """The argument that counts a list."""
        if param["range"]:
            return str(param["range"].removeprefix("0, "))
        return COUNTED_BY.get((function["name"], param["name"]))

    def _signature(self, function: Fact) -> str:
        return f"{function['return']} ZE_APICALL route_{function['name']}({self.header.parameters(function)})"

    def _first_handle(self, function: Fact) -> str:
        """The handle that decides whose the call is."""
        first = function["params"][0]
        if first["type"] in self._handles:
            return str(first["name"])
        taken = next(p for p in function["params"] if self._is_list(p) and p["dir"] == "in")
        return f"first_of({taken['name']}, {self._count(function, taken)})"

    def _refuse_strangers(self, function: Fact) -> list[str]:
        """Drivers read handles as addresses of their own, so another driver's may not reach them."""
        checks = [f"is_foreign(driver, {p['name']})" for p in function["params"][1:] if p["type"] in self._handles]
        lists = [p for p in function["params"] if self._is_list(p) and p["dir"] == "in"]
        checks += [f"is_foreign(driver, {p['name']}, {self._count(function, p)})" for p in lists]
        return [f"  if ({' || '.join(checks)}) return ZE_RESULT_ERROR_INVALID_ARGUMENT;"] if checks else []

    def _call(self, function: Fact) -> str:
        slot = f"driver->{function['ddi_table'].removesuffix('_dditable_t')}.{function['ddi_member']}"
        arguments = ", ".join(p["name"] for p in function["params"])
        return f"call({slot}, {arguments})"

    def _destroyed(self, function: Fact) -> Fact | None:
        """The handle that ends with the call; seldom another than the first."""
        handles = [p for p in function["params"] if p["type"] in self._handles]
        named = handles[:1] if DESTROYING.search(function["name"]) else []
        return next((p for p in handles if p["release"]), next(iter(named), None))

    def _destroying(self, function: Fact, handle: str) -> str:
        first = function["params"][0]["name"]
        other = f"""\
  if (owner_of({first}) != driver) {{
    learn_again({handle}, driver);
    return unknown({first});
  }}
"""
        return f"""\
{self._signature(function)} {{
  const Tables* driver = forget({handle});
  if (driver == nullptr) return unknown({handle});
{other if handle != first else ""}\
  const ze_result_t result = {self._call(function)};
  if (result != ZE_RESULT_SUCCESS) learn_again({handle}, driver);
  return result;
}}"""

    def _route(self, function: Fact) -> str:
        destroyed = self._destroyed(function)
        if destroyed:
            return self._destroying(function, destroyed["name"])
        handle = self._first_handle(function)
        lines = [f"{self._signature(function)} {{", f"  const Tables* driver = owner_of({handle});"]
        if function["return"] != "ze_result_t":
            # The only one of its kind: a handle is its result.
            lines.append(f"  return driver != nullptr ? learned(driver, {self._call(function)}) : nullptr;\n}}")
            return "\n".join(lines)
        lines.append(f"  if (driver == nullptr) return unknown({handle});")
        lines += self._refuse_strangers(function)
        given = [
            p
            for p in function["params"]
            if self._is_list(p) and p["dir"] != "in" and (function["name"], p["name"]) not in NOT_LEARNED
        ]
        if not given:
            return "\n".join([*lines, f"  return {self._call(function)};\n}}"])
        counts = {p["name"]: (self._count(function, p) or "").removeprefix("*") for p in given}
        for name, count in counts.items():
            if count:
                lines.append(f"  const uint32_t room = room_in({name}, {count});")
        lines.append(f"  ze_result_t result = {self._call(function)};")
        for param in given:
            name, count = param["name"], counts[param["name"]]
            what = f"{name}, {count}, room" if count else name
            learn = "learn_log" if param["type"] == BUILD_LOG else "learn_list" if count else "learn_one"
            lines.append(f"  {learn}(driver, {what}, &result);")
        return "\n".join([*lines, "  return result;\n}"])

    def _table(self, table: Fact) -> str:
        slots = ", ".join(
            "nullptr" if m["function"] in NOT_ROUTED else f"route_{m['function']}" for m in table["members"]
        )
        return f"    {{{slots}}},"

    def text(self) -> str:
        """Write the functions, and the table with all of them."""
        by_hand = [f"{self._signature(f)};" for f in self.functions if f["name"] in BY_HAND]
        routes = [self._route(f) for f in self.functions if f["name"] not in BY_HAND]
        tables = [self._table(t) for t in self.spec.tables(*COMPONENTS)]
        return "\n".join(
            [
                GUARD.replace("/*", "//").replace(" */", ""),
                '#include "route.hpp"',
                *by_hand,
                "namespace {",
                *routes,
                "}  // namespace",
                "const Tables routes = {",
                *tables,
                "};",
                "",
            ]
        )
