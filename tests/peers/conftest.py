"""Real peers: other people's libraries at one end of the memory, OpenVINO's NPU plugin at the other."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

ov = pytest.importorskip("openvino")
pytest.importorskip("numpy")

from npu_helpers import add_model  # noqa: E402
from peer_helpers import COUNT, Exchange  # noqa: E402

import l0py  # noqa: E402
import ovadapter  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHILD = "L0PY_PEER_CHILD"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test marked `own_process` in a Python of its own, in the environment of its fixture `runtime`.

    Peers that bring runtimes (SYCL, OpenCL, Vulkan) and their threads do not stay in the process of all other tests,
    which runs the fixtures all the same: those only look for what is needed. `first` is run before all else.
    """
    marker = pyfuncitem.get_closest_marker("own_process")
    if marker is None or os.environ.get(_CHILD):
        return None
    script = f"{marker.kwargs.get('first', '')}\nimport pytest\nraise SystemExit(pytest.main())"
    environment, python = pyfuncitem.funcargs["runtime"]
    done = subprocess.run(
        [*python, "-c", script, "-p", "no:cacheprovider", pyfuncitem.nodeid],
        cwd=pyfuncitem.config.rootpath,
        env={**os.environ, _CHILD: "1", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    last = (done.stdout.strip().splitlines() or ["nothing"])[-1]
    if done.returncode or "1 passed" not in last:
        pytest.fail(f"in its own process:\n{done.stdout}\n{done.stderr}", pytrace=False)
    return True


@pytest.fixture(scope="session")
def npu(device: l0py.Device) -> ovadapter.NpuContext:
    assert device.driver.is_software
    return ovadapter.NpuContext(ov.Core())


@pytest.fixture
def context(npu: ovadapter.NpuContext) -> Iterator[l0py.Context]:
    with l0py.Context(npu.device) as one:
        yield one


@pytest.fixture(scope="session")
def compiled(npu: ovadapter.NpuContext) -> Any:
    """Adds 1 to as many f32 as fill whole pages."""
    return npu.core.compile_model(add_model([COUNT]), "NPU")


@pytest.fixture
def exchange(npu: ovadapter.NpuContext, compiled: Any) -> Exchange:
    return Exchange(npu, compiled)
