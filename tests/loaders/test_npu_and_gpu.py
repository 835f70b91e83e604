"""Both software drivers behind one loader, in both orders: the embedded one, and Debian 12's 1.8."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from probe import run

pytestmark = pytest.mark.loaders

SCRIPT = Path(__file__).with_name("gpu_beside_npu.py")
INTERCEPT = {"ZE_ENABLE_LOADER_INTERCEPT": "1"}
CHECKS = {
    "ZE_ENABLE_VALIDATION_LAYER": "1",
    "ZE_ENABLE_PARAMETER_VALIDATION": "1",
    "ZE_ENABLE_HANDLE_LIFETIME": "1",
}
ORDERS = ["npu,gpu", "gpu,npu"]
#: What the script tells of the software drivers wherever they stand.
OUTCOME = {
    "exchange": ["first", "again"] * 2,
    "copied": ["gpu", "npu"],
    "around": [0] * 12,
    "churn": [200, 200],
    "forked": 0,
    "live": 0,
    "contexts": [0, 0],
    "software": [True, True],
}


def outcome(order: str, *parts: str, **environment: str) -> dict[str, Any]:
    command = [sys.executable, str(SCRIPT), *parts]
    told: dict[str, Any] = json.loads(run(command, timeout=240, L0PY_SOFTDRIVER=order, **environment))
    assert told.pop("kinds") == order.split(",")
    return told


@pytest.mark.parametrize("order", ORDERS)
def test_behind_the_embedded_loader(embedded_loader: Path, order: str) -> None:
    """Memory crosses both ways, threads and a fork do no harm, and OpenVINO infers on the NPU beside the GPU."""
    pytest.importorskip("openvino")
    told = outcome(order, L0PY_LOADER=str(embedded_loader))
    assert told.pop("version") == "1.32.0"
    assert told.pop("inferred") == [0, 2, 4, 6]
    assert told.items() >= OUTCOME.items()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("layers", [{}, INTERCEPT, CHECKS], ids=["plain", "intercept", "checks"])
def test_behind_debian_12s_loader(debian12_loader: Path, order: str, layers: dict[str, str]) -> None:
    """It wraps every handle. OpenVINO cannot use it."""
    parts = [name for name in OUTCOME if name not in ("live", "contexts", "software")]
    environment = {"LD_LIBRARY_PATH": str(debian12_loader.parent), "L0PY_LOADER": str(debian12_loader), **layers}
    told = outcome(order, *parts, **environment)
    assert told.pop("version").startswith("1.8.")
    assert told.items() >= OUTCOME.items()
