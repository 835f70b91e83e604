"""Compiled models as files: exported, imported, damaged, and in OpenVINO's model cache."""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING, Any

import openvino as ov
import pytest
from plugin_helpers import conv_model, infer, on_cpu, random_inputs, refusal, relu_model

if TYPE_CHECKING:
    from pathlib import Path

PAGE = 4096


@pytest.fixture(scope="module")
def exported(core: ov.Core) -> bytes:
    """The driver's binary, made up to whole pages, and the plugin's footer."""
    return bytes(core.compile_model(relu_model(), "NPU").export_model().getvalue())


@pytest.fixture(scope="module")
def footer(exported: bytes) -> bytes:
    return exported[len(exported) // PAGE * PAGE :]


def imported(core: ov.Core, blob: bytes) -> ov.CompiledModel:
    return core.import_model(io.BytesIO(blob), "NPU")


def with_payload(payload: bytes, footer: bytes) -> bytes:
    """A file whose footer is right and says that the driver's part has this size."""
    assert footer.endswith(b"OVNPU")
    return payload + footer[:-13] + struct.pack("<Q", len(payload)) + b"OVNPU"


def test_results_and_ports(core: ov.Core) -> None:
    model = conv_model()
    compiled = core.compile_model(model, "NPU")
    again = imported(core, compiled.export_model().getvalue())
    inputs = random_inputs(model)
    assert infer(again, inputs) == infer(compiled, inputs) == infer(on_cpu(core, model), inputs)
    for port, own in zip(again.inputs + again.outputs, compiled.inputs + compiled.outputs, strict=True):
        assert (port.get_names(), port.shape, port.element_type) == (own.get_names(), own.shape, own.element_type)


def test_without_the_original(core: ov.Core) -> None:
    """The binary holds all that it needs, weights too: another Core in a later time can read it."""
    model = conv_model()
    blob = core.compile_model(model, "NPU").export_model().getvalue()
    inputs = random_inputs(model)
    wanted = infer(on_cpu(core, model), inputs)
    del model
    assert infer(imported(ov.Core(), blob), inputs) == wanted


@pytest.mark.parametrize("kept", [0, 1, 64, 1000, PAGE, -30, -1])
def test_truncated(core: ov.Core, exported: bytes, kept: int) -> None:
    with pytest.raises(RuntimeError, match="Could not import the model"):
        imported(core, exported[:kept])


@pytest.mark.parametrize("kept", [1, 63, 64, 100, 1000])
def test_truncated_before_the_footer(core: ov.Core, exported: bytes, footer: bytes, kept: int) -> None:
    with pytest.raises(RuntimeError) as error:
        imported(core, with_payload(exported[:kept], footer))
    assert "not a usable native binary" in refusal(error)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda b: b"\xff" + b[1:], "it does not begin like one that this driver makes (4096 bytes)"),
        (lambda b: b[:8] + b"\x09" + b[9:], "it has format version 9, this driver reads version 1"),
        (lambda b: b[:16] + struct.pack("<Q", 1 << 40) + b[24:], f"it is truncated: 4096 of {1 << 40} bytes"),
        (lambda b: b[:200] + bytes([b[200] ^ 1]) + b[201:], "it is damaged, its checksum is wrong"),
        (lambda b: b[:-1] + b"\x01", "something else follows it"),
        (lambda b: bytes(range(256)) * 16, "it does not begin like one that this driver makes (4096 bytes)"),
    ],
    ids=["magic", "version", "size", "bit", "tail", "garbage"],
)
def test_damaged(core: ov.Core, exported: bytes, footer: bytes, change: Any, told: str) -> None:
    with pytest.raises(RuntimeError) as error:
        imported(core, with_payload(change(exported[:PAGE]), footer))
    assert f"not a usable native binary: {told}" in refusal(error)


def test_every_bit_of_the_header_counts(core: ov.Core, exported: bytes, footer: bytes) -> None:
    for place in range(64):
        payload = bytearray(exported[:PAGE])
        payload[place] ^= 1 << (place % 8)
        with pytest.raises(RuntimeError, match="not a usable native binary"):
            imported(core, with_payload(bytes(payload), footer))


def test_garbage(core: ov.Core) -> None:
    with pytest.raises(RuntimeError, match="missing the NPU metadata"):
        imported(core, b"hello" * 1000)


@pytest.fixture
def cached(tmp_path: Path, core: ov.Core) -> ov.Core:
    """A Core of its own, with a cache of its own."""
    made = ov.Core()
    made.set_property({"CACHE_DIR": str(tmp_path)})
    return made


def test_cache(core: ov.Core, cached: ov.Core, tmp_path: Path) -> None:
    model = conv_model()
    inputs = random_inputs(model)
    first = cached.compile_model(model, "NPU")
    assert not first.get_property("LOADED_FROM_CACHE")
    assert len(list(tmp_path.glob("*.blob"))) == 1
    second = cached.compile_model(model, "NPU")
    assert second.get_property("LOADED_FROM_CACHE")
    wanted = infer(on_cpu(core, model), inputs)
    assert infer(first, inputs) == infer(second, inputs) == wanted


def test_cache_of_another_model(cached: ov.Core) -> None:
    cached.compile_model(conv_model(), "NPU")
    other = cached.compile_model(relu_model([1, 9]), "NPU")
    assert not other.get_property("LOADED_FROM_CACHE")


def test_cache_outlives_the_core(core: ov.Core, cached: ov.Core, tmp_path: Path) -> None:
    model = conv_model()
    cached.compile_model(model, "NPU")
    later = ov.Core()
    later.set_property({"CACHE_DIR": str(tmp_path)})
    compiled = later.compile_model(model, "NPU")
    assert compiled.get_property("LOADED_FROM_CACHE")
    inputs = random_inputs(model)
    assert infer(compiled, inputs) == infer(on_cpu(core, model), inputs)


@pytest.mark.parametrize("damage", ["truncated", "changed"])
def test_damaged_cache(core: ov.Core, cached: ov.Core, tmp_path: Path, damage: str) -> None:
    """The model is compiled again, and the file made anew."""
    model = relu_model()
    cached.compile_model(model, "NPU")
    (file,) = tmp_path.glob("*.blob")
    sound = file.read_bytes()
    place = sound.index(b"L0PY-NPU") + 200
    file.write_bytes(sound[:place] + (b"" if damage == "truncated" else bytes([sound[place] ^ 1]) + sound[place + 1 :]))
    compiled = cached.compile_model(model, "NPU")
    assert not compiled.get_property("LOADED_FROM_CACHE")
    inputs = random_inputs(model)
    assert infer(compiled, inputs) == infer(on_cpu(core, model), inputs)
    assert file.read_bytes() == sound
