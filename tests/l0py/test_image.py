"""Images, on the software GPU driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import l0py
from l0py import external, softdriver
from l0py import image as images

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def on_gpu(no_leaks: None, gpu: l0py.Device) -> Iterator[l0py.Context]:
    with l0py.Context(gpu) as context:
        yield context


def picture(height: int, width: int) -> Any:
    return np.random.default_rng(1).integers(0, 256, (height, width, 4), "u1")


def test_pixels_go_in_and_out(on_gpu: l0py.Context) -> None:
    """37 pixels a row: rows of an image lie apart by more than their bytes, those of a copy do not."""
    pixels = picture(21, 37)
    with on_gpu.create_image(37, 21) as image:
        assert (image.width, image.height, image.depth, image.size) == (37, 21, 1, pixels.nbytes)
        assert (image.type, image.layout, image.format) == ("2d", "8_8_8_8", "unorm")
        image.copy_from(pixels)
        got = np.zeros_like(pixels)
        image.copy_to(got)
        assert (got == pixels).all()


def test_memory_goes_in_and_out_without_the_host(on_gpu: l0py.Context) -> None:
    pixels = picture(8, 16)
    with (
        on_gpu.alloc_device(100 + pixels.nbytes) as source,
        on_gpu.alloc_host(100 + pixels.nbytes) as target,
        on_gpu.create_image(16, 8) as image,
    ):
        source.copy_from(pixels, offset=100)
        image.copy_from(source, offset=100)
        target.fill(9)
        image.copy_to(target, offset=100)
        assert target.numpy()[100:].tobytes() == pixels.tobytes()
        assert set(target.numpy()[:100]) == {9}


@pytest.mark.parametrize(
    ("extent", "how"),
    [
        ((16,), {"type": "1d", "layout": "32", "format": "float"}),
        ((16,), {"type": "1darray", "layout": "16_16", "format": "sint", "array_levels": 3}),
        ((5, 3), {"layout": "8_8_8", "format": "uint", "swizzle": "bgr1"}),
        ((5, 3), {"type": "2darray", "layout": "5_6_5", "array_levels": 2}),
        ((5, 3, 4), {"type": "3d", "layout": "32_32_32_32", "format": "float", "flags": "kernel_write"}),
    ],
)
def test_kinds_of_images(on_gpu: l0py.Context, extent: tuple[int, ...], how: dict[str, Any]) -> None:
    with on_gpu.create_image(*extent, **how) as image:
        data = np.random.default_rng(2).integers(0, 256, image.size, "u1")
        image.copy_from(data)
        got = bytearray(image.size + 7)
        image.copy_to(got, offset=7)
        assert bytes(got[7:]) == data.tobytes()


def test_every_layout_has_a_size() -> None:
    """Of a pixel; the figures of media formats are those of their definition."""
    known = {
        "nv12": 12,
        "p010": 24,
        "yuyv": 16,
        "ayuv": 32,
        "y416": 64,
        "11_11_10": 32,
        "10_10_10_2": 32,
        "32_32_32": 96,
    }
    bits = {layout: images.pixel_bits(layout) for layout in images.LAYOUTS}
    assert all(8 <= number <= 128 for number in bits.values())
    assert {layout: bits[layout] for layout in known} == known


@pytest.mark.parametrize("kind", external.FD_KINDS)
def test_an_image_is_exported_and_imported(on_gpu: l0py.Context, gpu: l0py.Device, kind: str) -> None:
    pixels = picture(8, 16)
    got = np.zeros_like(pixels)
    with on_gpu.create_image(16, 8, exportable=kind) as image:
        image.copy_from(pixels)
        first, second = image.export(), image.export(kind)
    with (
        first,
        second,
        l0py.Context(gpu) as other,
        other.create_image(16, 8, fd=first, fd_type=kind) as one,
        on_gpu.create_image(16, 8, fd=second, fd_type=kind) as two,
        one.export() as again,
    ):
        assert first.identity == second.identity == again.identity
        one.copy_to(got)
        assert (got == pixels).all()
        two.copy_from(pixels[::-1].copy())
        one.copy_to(got)
        assert (got == pixels[::-1]).all()


@pytest.mark.parametrize("release", ["22.43", "26.13", "26.14"])
def test_imports_leave_no_descriptor(on_gpu: l0py.Context, release: str) -> None:
    """Intel's drivers close an image's descriptor, whatever they do to memory's: it is watched each time."""
    try:
        softdriver.imitate(release)
        if "dma_buf" not in on_gpu.device.external_memory.image_exports:  # type: ignore[union-attr]
            with pytest.raises(l0py.NotSupported, match="cannot export images as dma_buf: it offers none"):
                on_gpu.create_image(16, 8, exportable=True)
            return
        with on_gpu.create_image(16, 8, exportable=True) as image, image.export() as fd:
            for _ in range(10):
                on_gpu.create_image(16, 8, fd=fd).close()
                softdriver.inject("zeImageCreate", driver="gpu", result="ZE_RESULT_ERROR_DEVICE_LOST")
                with pytest.raises(l0py.DeviceLost):
                    on_gpu.create_image(16, 8, fd=fd)
            assert fd.size >= image.size
    finally:
        softdriver.imitate("26.14")


def test_what_cannot_be_exported(on_gpu: l0py.Context) -> None:
    with on_gpu.create_image(16, 8) as image, pytest.raises(l0py.InvalidArgument, match="create it so"):
        image.export()
    with on_gpu.create_image(16, 8, exportable=True) as image, pytest.raises(l0py.InvalidArgument, match="opaque_fd"):
        image.export("opaque_fd")
    with pytest.raises(l0py.InvalidArgument, match="'magic'"):
        on_gpu.create_image(16, 8, exportable="magic")
    with pytest.raises(l0py.NotSupported, match="opaque_win32"):
        on_gpu.create_image(16, 8, exportable="opaque_win32")


def test_properties(on_gpu: l0py.Context) -> None:
    with on_gpu.create_image(16, 8) as image:
        assert image.properties == l0py.ImageProperties(
            0, frozenset()
        )  # as Intel's driver tells, which has no samplers
        assert "16x8 8_8_8_8 (2d)" in repr(image)


@pytest.mark.parametrize(
    "wrong",
    [
        {"width": 0},
        {"width": -1},
        {"height": 0},
        {"depth": 2},
        {"width": 1 << 32},
        {"type": "4d"},
        {"type": "1d", "height": 2},
        {"type": "2darray"},
        {"array_levels": 2},
        {"layout": "7_7"},
        {"format": "double"},
        {"swizzle": "rgb"},
        {"swizzle": "rgbq"},
        {"flags": "fast"},
    ],
)
def test_images_that_cannot_be(on_gpu: l0py.Context, wrong: dict[str, Any]) -> None:
    with pytest.raises(l0py.InvalidArgument):
        on_gpu.create_image(**{"width": 4, "height": 4, **wrong})


def test_images_that_the_device_does_not_have(on_gpu: l0py.Context) -> None:
    with pytest.raises(l0py.InvalidArgument, match="UNSUPPORTED_SIZE"):
        on_gpu.create_image(1 << 20, 1)
    with pytest.raises(l0py.NotSupported, match="UNSUPPORTED_IMAGE_FORMAT"):
        on_gpu.create_image(4, 4, layout="ayuv")
    with pytest.raises(l0py.OutOfMemory, match="more than one allocation"):
        on_gpu.create_image(1 << 31, 1 << 31)


def test_copies_that_do_not_fit(on_gpu: l0py.Context, gpu: l0py.Device) -> None:
    with on_gpu.create_image(16, 8) as image, on_gpu.alloc_host(512) as memory:
        for wrong in (
            lambda: image.copy_from(bytes(511)),
            lambda: image.copy_from(bytes(512), offset=1),
            lambda: image.copy_from(bytes(600), offset=-1),
            lambda: image.copy_to(bytearray(511)),
            lambda: image.copy_from(memory, offset=1),
            lambda: image.copy_to(memory, offset=-1),
        ):
            with pytest.raises(l0py.InvalidArgument, match="have no room for the image's 512"):
                wrong()
        with pytest.raises((BufferError, ValueError)):
            image.copy_to(bytes(512))
        with l0py.Context(gpu) as other, other.alloc_host(512) as foreign:
            for copy in (image.copy_from, image.copy_to):
                with pytest.raises(l0py.InvalidArgument, match="another context"):
                    copy(foreign)


def test_buffers_that_hold_no_image(on_gpu: l0py.Context, memfd: int) -> None:
    with pytest.raises(l0py.InvalidArgument, match="has 8192 bytes, fewer than the 4000000"):
        on_gpu.create_image(1000, 1000, fd=memfd)
    with pytest.raises(l0py.OutOfMemory, match="zeImageCreate"):
        on_gpu.create_image(1, 2048, fd=memfd)  # its pixels would fit, its rows do not
    with pytest.raises(l0py.BadDescriptor):
        on_gpu.create_image(4, 4, fd=1 << 20)
    with pytest.raises(l0py.NotSupported, match="cannot import images from opaque_win32"):
        on_gpu.create_image(4, 4, fd=memfd, fd_type="opaque_win32")


def test_a_closed_image(on_gpu: l0py.Context) -> None:
    image = on_gpu.create_image(4, 4, exportable=True)
    image.close()
    image.close()
    for use in (image.export, lambda: image.copy_from(bytes(64)), lambda: image.properties, lambda: image.handle):
        with pytest.raises(l0py.Closed):
            use()
    with pytest.raises(TypeError, match="create_image"):
        l0py.Image()


def test_npu_drivers_have_none(context: l0py.Context, memfd: int, no_leaks: None) -> None:
    with pytest.raises(l0py.NotSupported, match="zeImageCreate"):
        context.create_image(4, 4)
    with pytest.raises(l0py.NotSupported, match="cannot export images as dma_buf: it offers none"):
        context.create_image(4, 4, exportable=True)
    with pytest.raises(l0py.NotSupported, match="cannot import images from dma_buf: it offers none"):
        context.create_image(4, 4, fd=memfd)
