"""The embedded loader: what it exports, which drivers it takes, and what it answers without one."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from probe import ask

if TYPE_CHECKING:
    from conftest import CompileDriver

ROOT = Path(__file__).resolve().parents[2]

SUCCESS = 0
DEVICE_LOST = 0x70000001
UNINITIALIZED = 0x78000001
UNSUPPORTED_VERSION = 0x78000002
UNSUPPORTED_FEATURE = 0x78000003
INVALID_NULL_POINTER = 0x78000007
INVALID_ENUMERATION = 0x7800000C

GPU, NPU = 1, 2

#: What statically linked loaders call beside the API.
FOR_STATIC_LOADERS = {
    "zeLoaderGetTracingHandle",
    "zeLoaderInit",
    "zelLoaderGetVersion",
    "zelLoaderGetVersionsInternal",
    "zelLoaderTranslateHandleInternal",
}


def names_of_the_facts() -> set[str]:
    facts = json.loads((ROOT / "l0py" / "spec" / "level_zero.json").read_text())
    functions = {f["name"] for f in facts["functions"] + facts["loader_functions"]}
    getters = {t["getter"] for t in facts["ddi_tables"]}
    return functions | getters


def test_exports_every_name(embedded_loader: Path) -> None:
    script = f"answer([name for name in {sorted(names_of_the_facts())!r} if not hasattr(ze, name)])"
    assert ask(embedded_loader, script) == []


def test_exports_nothing_else(embedded_loader: Path) -> None:
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("no nm (binutils)")
    text = subprocess.run(
        [nm, "-D", "--defined-only", embedded_loader], capture_output=True, text=True, check=True
    ).stdout
    assert {line.split()[-1] for line in text.splitlines()} == names_of_the_facts() | FOR_STATIC_LOADERS


def test_says_what_it_is(embedded_loader: Path) -> None:
    """OpenVINO calls zeInitDrivers only for loaders that say 1.18.5 or newer."""
    script = """
one, count = Version(), ctypes.c_size_t()
results = [ze.zelGetLoaderVersion(ctypes.byref(one)), ze.zelLoaderGetVersions(ctypes.byref(count), None)]
listed = (Version * 2)()
room = ctypes.c_size_t(2)
results.append(ze.zelLoaderGetVersions(ctypes.byref(room), listed))
same = bytes(one) == bytes(listed[0])
answer([results, count.value, room.value, one.name.decode(), list(one.lib), same, ctypes.sizeof(one)])
"""
    results, count, filled, name, version, same, size = ask(embedded_loader, script)
    assert results == [SUCCESS] * 3
    assert (count, filled, name, same, size) == (1, 1, "loader", True, 80)
    assert version >= [1, 18, 5]


def test_translates_handles_to_themselves(embedded_loader: Path) -> None:
    script = """
out = ctypes.c_void_p()
translate = ze.zelLoaderTranslateHandle
good = translate(2, ctypes.c_void_p(0x1234), ctypes.byref(out))
answer([good, out.value, translate(99, None, ctypes.byref(out)), translate(2, None, None)])
"""
    assert ask(embedded_loader, script) == [SUCCESS, 0x1234, INVALID_ENUMERATION, INVALID_NULL_POINTER]


def test_before_init(embedded_loader: Path, second_driver: Path) -> None:
    script = "answer([driver_count(), ze.zeMemFree(None, None), inits_of(drivers[0])])"
    assert ask(embedded_loader, script, drivers=[second_driver]) == [[UNINITIALIZED, 0], UNINITIALIZED, 0]


@pytest.mark.parametrize("init", ["ze.zeInit(0)", "ze.zeInit(1)", "init_drivers(1)[0]", "init_drivers(0xFFFFFFFF)[0]"])
def test_every_way_to_initialize(embedded_loader: Path, second_driver: Path, init: str) -> None:
    """Then the driver answers, and what it lacks is not supported."""
    script = f"answer([{init}, driver_count(), ze.zeMemFree(None, None)])"
    assert ask(embedded_loader, script, drivers=[second_driver]) == [SUCCESS, [SUCCESS, 1], UNSUPPORTED_FEATURE]


def test_drivers_without_zeinitdrivers(embedded_loader: Path, compile_driver: CompileDriver) -> None:
    """They are served by zeInit and zeDriverGet."""
    driver = compile_driver(NO_INIT_DRIVERS=1)
    script = "answer([init_drivers(1, room=0), init_drivers(1), init_drivers(2)])"
    expected = [[SUCCESS, 1, False], [SUCCESS, 1, True], [UNINITIALIZED, 4, False]]
    assert ask(embedded_loader, script, drivers=[driver]) == expected


def test_sysman_first(embedded_loader: Path, second_driver: Path) -> None:
    """A driver without sysman is not lost for the rest."""
    script = "answer([ze.zesInit(0), driver_count()[0], ze.zeInit(0), driver_count()])"
    expected = [UNSUPPORTED_FEATURE, UNINITIALIZED, SUCCESS, [SUCCESS, 1]]
    assert ask(embedded_loader, script, drivers=[second_driver]) == expected


def test_bad_arguments(embedded_loader: Path, second_driver: Path) -> None:
    script = """
count = ctypes.c_uint32()
answer([ze.zeInitDrivers(None, None, ctypes.byref(InitDesc(0, None, 1))),
        ze.zeInitDrivers(ctypes.byref(count), None, None), init_drivers(0)[0], inits_of(drivers[0])])
"""
    expected = [INVALID_NULL_POINTER, INVALID_NULL_POINTER, INVALID_ENUMERATION, 0]
    assert ask(embedded_loader, script, drivers=[second_driver]) == expected


def test_every_driver_that_accepts(embedded_loader: Path, compile_driver: CompileDriver) -> None:
    """Missing files, libraries that are no driver and drivers of another type are passed over."""
    gpu, npu, late = compile_driver(TYPES=GPU), compile_driver(TYPES=NPU), compile_driver(TYPES=3)
    drivers = ["/nowhere/libze_none.so", embedded_loader, "libm.so.6", gpu, npu, late]
    script = "answer([init_drivers(2), [inits_of(d) for d in drivers[3:]]])"
    assert ask(embedded_loader, script, drivers=drivers) == [[SUCCESS, 2, True], [1, 1, 1]]


def test_a_refusal_is_remembered(embedded_loader: Path, compile_driver: CompileDriver) -> None:
    """No second call for what was refused; looking for an NPU in vain leaves the GPU to be found."""
    driver = compile_driver(TYPES=GPU)
    script = """
d = drivers[0]
answer([[ze.zeInit(2), inits_of(d)], [init_drivers(2)[0], inits_of(d)], [ze.zeMemFree(None, None), inits_of(d)],
        [init_drivers(1)[0], inits_of(d)], driver_count()])
"""
    expected = [[UNINITIALIZED, 1], [UNINITIALIZED, 1], [UNINITIALIZED, 1], [SUCCESS, 2], [SUCCESS, 1]]
    assert ask(embedded_loader, script, drivers=[driver]) == expected


def test_a_failed_init_is_final(embedded_loader: Path, compile_driver: CompileDriver) -> None:
    """The driver's own reason comes out, each time; every other function answers that nothing is initialized."""
    driver = compile_driver(INIT_RESULT=hex(DEVICE_LOST), TYPES=3)
    script = """
every = [ze.zeInit(0), init_drivers(3)[0], ze.zeInit(0)]
answer([every, driver_count()[0], ze.zeContextDestroy(None), inits_of(drivers[0])])
"""
    expected = [[DEVICE_LOST] * 3, UNINITIALIZED, UNINITIALIZED, 1]
    assert ask(embedded_loader, script, drivers=[driver]) == expected


def test_no_driver_at_all(embedded_loader: Path) -> None:
    script = "answer([ze.zeInit(0), ze.zeInit(0), init_drivers(3)[0], driver_count()[0], ze.zesInit(0)])"
    assert ask(embedded_loader, script, drivers=["/nowhere/libze_none.so"]) == [UNINITIALIZED] * 5


@pytest.mark.parametrize(
    ("macro", "init"),
    [("MEM_TABLE_RESULT", UNSUPPORTED_VERSION), ("EXP_TABLE_RESULT", SUCCESS)],
    ids=["required", "experimental"],
)
def test_tables_that_fail(embedded_loader: Path, compile_driver: CompileDriver, macro: str, init: int) -> None:
    driver = compile_driver(**{macro: hex(UNSUPPORTED_VERSION)})
    assert ask(embedded_loader, "answer(ze.zeInit(0))", drivers=[driver]) == init


def test_a_driver_that_writes_past_the_table(embedded_loader: Path, compile_driver: CompileDriver) -> None:
    """Some newer drivers fill slots that the loader's version does not have."""
    driver = compile_driver(OVERFLOW_SLOTS=20)
    assert ask(embedded_loader, "answer([ze.zeInit(0), driver_count()])", drivers=[driver]) == [SUCCESS, [SUCCESS, 1]]


def test_threads_that_initialize_together(embedded_loader: Path, compile_driver: CompileDriver) -> None:
    npu, both = compile_driver(TYPES=NPU), compile_driver(TYPES=3)
    script = """
import threading
start, results = threading.Barrier(16), []
def one():
    start.wait()
    results.append([ze.zeInit(1), driver_count()])
threads = [threading.Thread(target=one) for _ in range(16)]
[t.start() for t in threads]
[t.join() for t in threads]
answer([results, inits_of(drivers[0])])
"""
    assert ask(embedded_loader, script, drivers=[npu, both]) == [[[SUCCESS, [SUCCESS, 1]]] * 16, 1]


def test_after_the_driver_is_gone(embedded_loader: Path, second_driver: Path) -> None:
    """Drivers say so when the process ends; what comes later is answered here."""
    script = """
ze.zelCheckIsLoaderInTearDown.restype = ctypes.c_bool
before = [ze.zeInit(0), ze.zelCheckIsLoaderInTearDown()]
answer([before, ze.zelSetDriverTeardown(), ze.zelCheckIsLoaderInTearDown(), driver_count()[0], ze.zeInit(0)])
"""
    expected = [[SUCCESS, False], SUCCESS, True, UNINITIALIZED, UNINITIALIZED]
    assert ask(embedded_loader, script, drivers=[second_driver]) == expected


def test_statically_linked_loaders(embedded_loader: Path, second_driver: Path) -> None:
    """They ask for the tables, of their own version: no slot behind its end is written."""
    script = """
slots = (ctypes.c_void_p * 3)(0, 0, 7)
old = [ze.zeGetGlobalProcAddrTable(0x10004, slots), bool(slots[0]), slots[1]]
new = [ze.zeGetGlobalProcAddrTable(0x10011, slots), bool(slots[1]), slots[2]]
init = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32)(slots[0])
answer([old, new, ze.zeGetGlobalProcAddrTable(0x20000, slots), init(0), driver_count()])
"""
    expected = [[SUCCESS, True, None], [SUCCESS, True, 7], UNSUPPORTED_VERSION, SUCCESS, [SUCCESS, 1]]
    assert ask(embedded_loader, script, drivers=[second_driver]) == expected


def test_what_statically_linked_loaders_call_beside_the_api(embedded_loader: Path, second_driver: Path) -> None:
    """As the one in SYCL's runtime does: start, ask for the version, and for the tracing layer's table."""
    script = """
ze.zeLoaderGetTracingHandle.restype = ctypes.c_void_p
tracing = ctypes.CDLL(None, handle=ze.zeLoaderGetTracingHandle())
table, count, one, out = (ctypes.c_void_p * 5)(), ctypes.c_size_t(1), Version(), ctypes.c_void_p()
results = [ze.zeLoaderInit(), ze.zelLoaderGetVersionsInternal(ctypes.byref(count), ctypes.byref(one)),
           ze.zelLoaderGetVersion(ctypes.byref(one)), tracing.zelGetTracerApiProcAddrTable(0x10011, table),
           ze.zelLoaderTranslateHandleInternal(2, ctypes.c_void_p(16), ctypes.byref(out))]
create = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p)(table[0])
answer([results, one.name.decode(), all(table), create(None, None), out.value, inits_of(drivers[0])])
"""
    expected = [[SUCCESS] * 5, "loader", True, UNSUPPORTED_FEATURE, 16, 0]
    assert ask(embedded_loader, script, drivers=[second_driver]) == expected
