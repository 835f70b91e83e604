"""Images: memory whose arrangement only the device knows, copied in and out pixel by pixel."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, NamedTuple, SupportsIndex

from . import _enums, external, lib
from ._ffi import ffi
from ._ffi import lib as _c
from .allocation import bits
from .errors import InvalidArgument, OutOfMemory, check
from .handles import CData, Handle, borrow, create
from .memory import Memory

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from .context import Context
    from .device import Device
    from .dmabuf import Fd
    from .external import Exported, HasFileno

__all__ = ["Image", "ImageProperties"]


def _names(enumerators: dict[int, str], prefix: str) -> dict[str, int]:
    """Enumerators by the rest of their name in lower case: `"8_8_8_8"`, `"nv12"`."""
    return {name[len(prefix) :].lower(): number for number, name in enumerators.items() if name.startswith(prefix)}


TYPES = _names(_enums.ze_image_type_t, "ZE_IMAGE_TYPE_")
LAYOUTS = _names(_enums.ze_image_format_layout_t, "ZE_IMAGE_FORMAT_LAYOUT_")
FORMATS = _names(_enums.ze_image_format_type_t, "ZE_IMAGE_FORMAT_TYPE_")
_SWIZZLES = _names(_enums.ze_image_format_swizzle_t, "ZE_IMAGE_FORMAT_SWIZZLE_")
_FLAGS = {
    "kernel_write": lib.ZE_IMAGE_FLAG_KERNEL_WRITE,
    "uncached": lib.ZE_IMAGE_FLAG_BIAS_UNCACHED,
}
_FILTERS = {
    "point": lib.ZE_IMAGE_SAMPLER_FILTER_FLAG_POINT,
    "linear": lib.ZE_IMAGE_SAMPLER_FILTER_FLAG_LINEAR,
}

#: Bits of a pixel, all planes together, where the layout's name does not list them.
_PIXEL_BITS = {
    **dict.fromkeys(("y8", "p8", "ia44", "ai44", "400p"), 8),
    **dict.fromkeys(("nv12", "i420", "yv12"), 12),
    **dict.fromkeys(("yuyv", "vyuy", "yvyu", "uyvy", "yuy2", "y16", "a8p8", "422h", "422v"), 16),
    **dict.fromkeys(("p010", "p012", "p016", "444p", "rgbp", "brgp"), 24),
    **dict.fromkeys(("ayuv", "y410", "y210", "y216", "p216"), 32),
    "y416": 64,
}


class ImageProperties(NamedTuple):
    """The driver's number for an image, and how it can be sampled: `"point"`, `"linear"`."""

    id: int
    filters: frozenset[str]


class Image(Handle):
    """An image of a context; made by `Context.create_image`.

    `width`, `height`, `depth` and `array_levels` are in pixels and layers, `type` is `"2d"` and the like, `layout` and
    `format` are a pixel's (`"8_8_8_8"`, `"unorm"`); `size` is the bytes of all pixels without padding, which is what
    copies move.
    """

    __slots__ = (
        "_desc",
        "_source",
        "array_levels",
        "context",
        "depth",
        "device",
        "exportable",
        "format",
        "height",
        "layout",
        "size",
        "type",
        "width",
    )

    _desc: CData
    _source: Fd | None  # what it was imported from: it can be exported again
    array_levels: int
    context: Context
    depth: int
    device: Device
    exportable: str
    format: str
    height: int
    layout: str
    size: int
    type: str
    width: int

    def __init__(self) -> None:
        raise TypeError("images are made by a context: create_image()")

    @classmethod
    def from_handle(
        cls,
        handle: int,
        width: SupportsIndex,
        height: SupportsIndex = 1,
        depth: SupportsIndex = 1,
        *,
        context: Context,
        device: Device | None = None,
        type: str = "2d",  # noqa: A002 - the specification's name for it
        layout: str = "8_8_8_8",
        format: str = "unorm",  # noqa: A002
        array_levels: SupportsIndex = 0,
        exportable: str = "",
        owner: object = None,
    ) -> Image:
        """Somebody else's `ze_image_handle_t`, made as told: never destroyed here; `owner` lives as long as it does."""
        extent = (operator.index(width), operator.index(height), operator.index(depth), operator.index(array_levels))
        desc = _described(extent, (type, layout, format, "rgba"), (), ffi.NULL)
        image: Image = object.__new__(cls)
        Handle.__init__(image, borrow(handle, context, owner), _c.L0_IMAGE, context._driver_handle)
        image._set_up(context, context._device(device), desc, (type, layout, format), exportable, None)
        return image

    def _set_up(
        self,
        context: Context,
        device: Device,
        desc: CData,
        pixels: tuple[str, str, str],
        exportable: str,
        source: Fd | None,
    ) -> None:
        self.context, self.device, self._desc = context, device, desc
        self.type, self.layout, self.format = pixels
        self.width, self.height, self.depth, self.array_levels = desc.width, desc.height, desc.depth, desc.arraylevels
        self.exportable, self._source = exportable, source
        self.size = _bytes_of(desc, self.layout)

    @property
    def properties(self) -> ImageProperties:
        """Calls zeImageGetAllocPropertiesExt and zeImageGetProperties."""
        number = self._alloc_properties(ffi.NULL)
        sampled = ffi.new("ze_image_properties_t*", {"stype": lib.ZE_STRUCTURE_TYPE_IMAGE_PROPERTIES})
        with self.held() as handle, self.context.held() as context:
            result = lib.zeImageGetAllocPropertiesExt(context, handle, number)
            check(result, "zeImageGetAllocPropertiesExt", driver=self._driver_handle)
            result = lib.zeImageGetProperties(self.device.handle, self._desc, sampled)
            check(result, "zeImageGetProperties", driver=self._driver_handle)
        filters = frozenset(name for name, bit in _FILTERS.items() if sampled.samplerFilterFlags & bit)
        return ImageProperties(int(number.id), filters)

    def export(self, kind: str | None = None) -> Exported:
        """An OS handle of the same image, as `Memory.export` gives it. Calls zeImageGetAllocPropertiesExt."""
        return external.export_object(self, kind, "zeImageGetAllocPropertiesExt", self._alloc_properties, "image")

    @staticmethod
    def _alloc_properties(chained: CData) -> CData:
        structure = lib.ZE_STRUCTURE_TYPE_IMAGE_ALLOCATION_EXT_PROPERTIES
        return ffi.new("ze_image_allocation_ext_properties_t*", {"stype": structure, "pNext": chained})

    def copy_from(self, source: Memory | Buffer, *, offset: SupportsIndex = 0) -> None:
        """Sets all pixels from `source`, `size` bytes from `offset` on, row by row without padding.

        Memory is read by the device, any other C-contiguous buffer through a host allocation. Raises
        `InvalidArgument` when it has fewer bytes. Calls zeCommandListAppendImageCopyFromMemory.
        """
        if not isinstance(source, Memory):
            start = operator.index(offset)
            data = ffi.from_buffer(source)
            self._require_inside(len(data), start)
            with self.context.alloc_host(self.size) as staging:
                staging.copy_from(ffi.buffer(data)[start : start + self.size])
                self.copy_from(staging)
            return
        first = self._first_byte(source, offset)
        with self.held() as image, source.held() as address:
            self.context._transfers(self.device).copy_to_image(image, address + first)

    def copy_to(self, target: Memory | Buffer, *, offset: SupportsIndex = 0) -> None:
        """All pixels into `target`, from `offset` bytes on; see `copy_from`.

        Calls zeCommandListAppendImageCopyToMemory.
        """
        if not isinstance(target, Memory):
            start = operator.index(offset)
            data = ffi.from_buffer(target, require_writable=True)
            self._require_inside(len(data), start)
            with self.context.alloc_host(self.size) as staging:
                self.copy_to(staging)
                ffi.buffer(data)[start : start + self.size] = staging.view()
            return
        if target.read_only:
            raise InvalidArgument(f"{target!r} is read-only")
        first = self._first_byte(target, offset)
        with self.held() as image, target.held() as address:
            self.context._transfers(self.device).copy_from_image(address + first, image)

    def _first_byte(self, memory: Memory, offset: SupportsIndex) -> int:
        start = operator.index(offset)
        self._require_inside(memory.size, start)
        if memory.context.handle != self.context.handle:
            raise InvalidArgument(f"{memory!r} is memory of another context than {self!r}: import it there")
        return start

    def _require_inside(self, there: int, offset: int) -> None:
        if offset < 0 or self.size > there - offset:
            raise InvalidArgument(f"{there} bytes have no room for the image's {self.size} from offset {offset} on")

    def close(self) -> None:
        """Destroys it; once, later calls do nothing. Calls zeImageDestroy."""
        try:
            super().close()
        finally:
            if self._source is not None:
                self._source.close()

    def _describe(self) -> str:
        return f"{self.width}x{self.height} {self.layout} ({self.type})"


def pixel_bits(layout: str) -> int:
    """Bits of a pixel, all its channels and planes together."""
    return _PIXEL_BITS[layout] if layout in _PIXEL_BITS else sum(map(int, layout.split("_")))


def _number(what: str, name: str, known: dict[str, int]) -> int:
    if name not in known:
        raise InvalidArgument(f"{what} {name!r} is none of {', '.join(known)}")
    return known[name]


def _require_shape(type: str, extent: tuple[int, int, int, int]) -> None:  # noqa: A002
    """Raises `InvalidArgument` for sides that the type does not have: drivers ignore them, and copies would not."""
    width, height, depth, levels = extent
    _number("type", type, TYPES)
    if min(width, height, depth) <= 0 or levels < 0 or max(extent) >= 1 << 32:
        raise InvalidArgument(f"an image of {width}x{height}x{depth} has no pixels, or too many")
    flat, thin, layers = type[:2] == "1d" or type == "buffer", type != "3d", type.endswith("array")
    if (flat and height != 1) or (thin and depth != 1) or layers != bool(levels):
        raise InvalidArgument(f"an image of type {type!r} cannot have {width}x{height}x{depth} and {levels} layers")


def _described(
    extent: tuple[int, int, int, int], pixels: tuple[str, str, str, str], flags: tuple[str, ...], chained: CData
) -> CData:
    """The description of an image: width, height, depth and array levels; type, layout, format and swizzle."""
    kind, layout, form, swizzle = pixels
    _require_shape(kind, extent)
    if len(swizzle) != 4:
        raise InvalidArgument(f"swizzle {swizzle!r} does not name four channels")
    desc = ffi.new("ze_image_desc_t*", {"stype": lib.ZE_STRUCTURE_TYPE_IMAGE_DESC, "pNext": chained})
    desc.type, desc.flags = TYPES[kind], bits(flags, _FLAGS)
    desc.width, desc.height, desc.depth, desc.arraylevels = extent
    desc.format.layout, desc.format.type = _number("layout", layout, LAYOUTS), _number("format", form, FORMATS)
    desc.format.x, desc.format.y, desc.format.z, desc.format.w = (
        _number("channel", channel, _SWIZZLES) for channel in swizzle
    )
    return desc


def make_image(
    context: Context,
    device: Device,
    extent: tuple[int, int, int, int],
    pixels: tuple[str, str, str, str],
    flags: tuple[str, ...],
    exportable: bool | str,
    fd: HasFileno | SupportsIndex | None,
    fd_type: str,
) -> Image:
    """An image, new or behind a descriptor: for contexts; see `_described`. Calls zeImageCreate."""
    offered, imported, kind = external.policy(context, device).offered, None, ""
    if fd is not None:
        imported, kind = external.descriptor(fd), fd_type
        external.require_offered(device, kind, offered.image_imports, "import images from")
    elif exportable:
        kind = external.export_kind(exportable, offered.image_exports)
        external.require_offered(device, kind, offered.image_exports, "export images as")
    chained = external.chain(kind, imported is not None)
    desc = _described(extent, pixels, flags, chained)
    size, driver = _bytes_of(desc, pixels[1]), context._driver_handle
    if imported is not None:
        external.import_size(imported, size)  # at least: rows may be padded, which the driver knows
    if size > context._limit:
        raise OutOfMemory(f"an image of {size} bytes is more than one allocation can have: {context._limit}")

    def call() -> CData:
        with context.held() as handle:
            return create(_c.L0_IMAGE, context, "zeImageCreate", handle, device.handle, desc, driver=driver)

    image: Image = object.__new__(Image)
    box, source = external.made(chained, imported, call)
    Handle.__init__(image, box, _c.L0_IMAGE, driver)
    desc.pNext = ffi.NULL  # it describes the image from now on, and does not keep what was chained
    image._set_up(context, device, desc, pixels[:3], kind, source)
    return image


def _bytes_of(desc: CData, layout: str) -> int:
    """Bytes of all pixels; layouts that share colours between pixels have them for whole pairs alone."""
    width, height = desc.width, desc.height
    if layout in _PIXEL_BITS:
        width, height = width + width % 2, height + height % 2
    return int(width * height * desc.depth * max(1, desc.arraylevels) * pixel_bits(layout) // 8)
