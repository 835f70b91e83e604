"""Every OpenVINO release that is promised."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.matrix
@pytest.mark.timeout(1800)
def test_every_release_is_healthy() -> None:
    done = subprocess.run([ROOT / "scripts/matrix", "--json"], capture_output=True, text=True, check=False)
    findings = json.loads(done.stdout)
    assert len(findings) == 5
    assert done.returncode == 0, {release: finding for release, finding in findings.items() if not finding["healthy"]}
    for release, finding in findings.items():
        assert finding["routes"] == {"SHARED_BUF": True, "keeper": True, "CPU_VA": True}, release
