"""What loaders that are not ours lack, or do before a driver is asked: reasons for tests to skip."""

from __future__ import annotations

import os

import pytest

import l0py
from l0py import lib, loader


def need(*functions: str) -> None:
    """Skips where the loader lacks one of them."""
    for name in functions:
        if not lib.has(name):
            pytest.skip(f"this loader has no {name}")


def has_layer(variable: str) -> bool:
    """Whether the variable of the environment makes the loader put a layer in; the embedded one has none."""
    return loader.info().source != "embedded" and os.environ.get(variable) == "1"


def wraps_handles() -> bool:
    """Whether handles are the loader's own objects: when there are several drivers, or layers.

    A null one then ends the process: `zeContextDestroy(0)` reads the driver's handle out of an object at address 0.
    """
    layers = ("ZE_ENABLE_LOADER_INTERCEPT", "ZE_ENABLE_VALIDATION_LAYER")
    return any(map(has_layer, layers)) or (loader.info().source != "embedded" and len(l0py.drivers()) > 1)


def need_physical_memory() -> None:
    """Skips where a validation layer has no physical memory used.

    1.8's refuses what came later: reservations without a start, physical memory of the host. 1.20's refuses
    `zePhysicalMemDestroy` as long as its context has dependents, and the memory itself is one.
    """
    if has_layer("ZE_ENABLE_VALIDATION_LAYER"):
        pytest.skip("this loader's validation layer refuses zeVirtualMemReserve or zePhysicalMemDestroy")
