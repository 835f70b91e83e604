"""One process, one driver: all of these tests run OpenVINO's NPU plugin on the software driver."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

os.environ.setdefault("L0PY_SOFTDRIVER", "1")

ov = pytest.importorskip("openvino")
pytest.importorskip("numpy")

from npu_helpers import add_model  # noqa: E402

import l0py  # noqa: E402
import ovadapter  # noqa: E402
from ovadapter import discovery  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """Where memory lies is chance, and OpenVINO before 2026.3 refuses pages that touch imported ones, as documented."""
    try:
        return (yield)
    except RuntimeError as error:
        if discovery.openvino_version() < (2026, 3) and "part of an existing allocation" in str(error):
            pytest.skip(str(error))
        raise


@pytest.fixture(scope="session")
def core() -> Any:
    return ov.Core()


@pytest.fixture(scope="session")
def npu(core: Any) -> ovadapter.NpuContext:
    return ovadapter.NpuContext(core)


@pytest.fixture
def context(npu: ovadapter.NpuContext) -> Iterator[l0py.Context]:
    with l0py.Context(npu.device) as one:
        yield one


@pytest.fixture(scope="session")
def compiled(npu: ovadapter.NpuContext) -> Any:
    """f32 1x1000 in and out: 4000 bytes, not whole pages."""
    return npu.core.compile_model(add_model([1, 1000]), "NPU")


@pytest.fixture(scope="session")
def paged(npu: ovadapter.NpuContext) -> Any:
    """f32 1x2048 in and out: 8192 bytes, whole pages."""
    return npu.core.compile_model(add_model([1, 2048]), "NPU")
