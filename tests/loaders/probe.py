"""Calls into a loader in a process of its own: a loader finds its drivers once per process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

#: The files of tests/l0py that talk to a loader; what the others test is the same behind any. Each runs in a process of
#: its own, so that a crash of one hides nothing of the rest.
L0PY_TESTS = (
    "test_behaviour.py", "test_context.py", "test_device.py", "test_driver.py", "test_external.py", "test_handles.py",
    "test_image.py", "test_imports.py", "test_ipc.py", "test_lib.py", "test_loader.py", "test_memory.py",
    "test_physical_memory.py", "test_softdriver.py",
)  # fmt: skip

#: Functions whose results are compared as the unsigned numbers that the specification gives.
CHECKED = (
    "zeInit,zeInitDrivers,zesInit,zeDriverGet,zeContextDestroy,zeMemFree,zeGetGlobalProcAddrTable,zelLoaderGetVersions,"
    "zelGetLoaderVersion,zelLoaderTranslateHandle,zelSetDriverTeardown"
)

#: What every script starts with: `ze` is the loader, `drivers` the listed ones.
PRELUDE = """
import ctypes, json, sys
ze = ctypes.CDLL(sys.argv[1])
for name in sys.argv[2].split(","):
    if hasattr(ze, name):
        getattr(ze, name).restype = ctypes.c_uint32
drivers = sys.argv[3:]

class InitDesc(ctypes.Structure):
    _fields_ = [("stype", ctypes.c_uint32), ("pNext", ctypes.c_void_p), ("flags", ctypes.c_uint32)]

class Version(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char * 64), ("spec", ctypes.c_uint32), ("lib", ctypes.c_int * 3)]

def init_drivers(flags, room=4):
    "Result, count and whether a handle came."
    count, handles = ctypes.c_uint32(room), (ctypes.c_void_p * 4)()
    desc = InitDesc(0x20021, None, flags)
    result = ze.zeInitDrivers(ctypes.byref(count), handles if room else None, ctypes.byref(desc))
    return [result, count.value, bool(handles[0])]

def driver_count():
    count = ctypes.c_uint32(0)
    return [ze.zeDriverGet(ctypes.byref(count), None), count.value]

def inits_of(driver):
    return ctypes.CDLL(driver).second_driver_inits()

def answer(fact):
    print(json.dumps(fact))
"""


def run(command: list[str], *, timeout: float = 120, **environment: str | None) -> str:
    """The command's output; fails with everything it said. `None` takes a variable away."""
    env = {k: v for k, v in (os.environ | environment).items() if v is not None}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def ask(loader: Path, script: str, *, drivers: Iterable[Path | str] = (), **environment: str | None) -> Any:
    """What `script` answers, run with `loader` and `drivers`."""
    alternatives = ",".join(map(str, drivers))
    command = [sys.executable, "-c", PRELUDE + script, str(loader), CHECKED, *map(str, drivers)]
    return json.loads(run(command, ZE_ENABLE_ALT_DRIVERS=alternatives, **environment))
