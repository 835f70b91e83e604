"""OpenVINO's NPU plugin, as PyPI carries it, on the software driver; the CPU plugin says what is right."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest

ov = pytest.importorskip("openvino")
pytest.importorskip("numpy")

if TYPE_CHECKING:
    from plugin_helpers import OnNpu

    import l0py


@pytest.fixture(scope="session")
def core(device: l0py.Device) -> Any:
    assert device.driver.is_software
    made = ov.Core()
    assert made.get_property("NPU", "FULL_DEVICE_NAME") == device.name
    return made


@pytest.fixture(params=["compiled", "imported"])
def on_npu(core: Any, request: pytest.FixtureRequest) -> OnNpu:
    """Compiles a model for the NPU: once plainly, once by way of its exported form."""

    def compiled(model: Any) -> Any:
        return core.compile_model(model, "NPU")

    def imported(model: Any) -> Any:
        return core.import_model(io.BytesIO(compiled(model).export_model().getvalue()), "NPU")

    return compiled if request.param == "compiled" else imported
