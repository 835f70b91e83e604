#include "image.hpp"

namespace softdriver {
namespace {

constexpr size_t pitch_step = 64;

struct Format {
  size_t element;    // bytes of a pixel, in the first plane
  size_t component;  // bits of the largest component
  bool planes;       // a second one of half the height follows
};

Format format_of(ze_image_format_layout_t layout) {
  switch (layout) {
    case ZE_IMAGE_FORMAT_LAYOUT_8: return {1, 8, false};
    case ZE_IMAGE_FORMAT_LAYOUT_8_8: return {2, 8, false};
    case ZE_IMAGE_FORMAT_LAYOUT_8_8_8: return {3, 8, false};
    case ZE_IMAGE_FORMAT_LAYOUT_8_8_8_8: return {4, 8, false};
    case ZE_IMAGE_FORMAT_LAYOUT_16: return {2, 16, false};
    case ZE_IMAGE_FORMAT_LAYOUT_16_16: return {4, 16, false};
    case ZE_IMAGE_FORMAT_LAYOUT_16_16_16: return {6, 16, false};
    case ZE_IMAGE_FORMAT_LAYOUT_16_16_16_16: return {8, 16, false};
    case ZE_IMAGE_FORMAT_LAYOUT_32: return {4, 32, false};
    case ZE_IMAGE_FORMAT_LAYOUT_32_32: return {8, 32, false};
    case ZE_IMAGE_FORMAT_LAYOUT_32_32_32: return {12, 32, false};
    case ZE_IMAGE_FORMAT_LAYOUT_32_32_32_32: return {16, 32, false};
    case ZE_IMAGE_FORMAT_LAYOUT_10_10_10_2: return {4, 10, false};
    case ZE_IMAGE_FORMAT_LAYOUT_11_11_10: return {4, 16, false};
    case ZE_IMAGE_FORMAT_LAYOUT_5_6_5: return {2, 6, false};
    case ZE_IMAGE_FORMAT_LAYOUT_5_5_5_1: return {2, 5, false};
    case ZE_IMAGE_FORMAT_LAYOUT_4_4_4_4: return {2, 4, false};
    case ZE_IMAGE_FORMAT_LAYOUT_NV12: return {1, 8, true};
    case ZE_IMAGE_FORMAT_LAYOUT_P010: return {2, 10, true};
    default: throw Failure(ZE_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT, "no such image layout here");
  }
}

void check_type(const Format& format, ze_image_format_type_t type) {
  if (type > ZE_IMAGE_FORMAT_TYPE_FLOAT || (type == ZE_IMAGE_FORMAT_TYPE_FLOAT && format.component < 16)) {
    throw Failure(ZE_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT, "the layout has no such type of numbers");
  }
}

}  // namespace

ImageLayout image_layout(const ze_image_desc_t& desc) {
  const Format format = format_of(desc.format.layout);
  check_type(format, desc.format.type);
  ImageLayout layout{format.planes ? 0 : format.element, desc.width, 1, 1, 0, 0, 0};
  switch (desc.type) {
    case ZE_IMAGE_TYPE_1D: break;
    case ZE_IMAGE_TYPE_1DARRAY: layout.slices = desc.arraylevels; break;
    case ZE_IMAGE_TYPE_2D: layout.height = desc.height; break;
    case ZE_IMAGE_TYPE_2DARRAY: layout.height = desc.height, layout.slices = desc.arraylevels; break;
    case ZE_IMAGE_TYPE_3D: layout.height = desc.height, layout.slices = desc.depth; break;
    case ZE_IMAGE_TYPE_BUFFER: throw Failure(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "no images of buffers");
    default: throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "desc.type is unknown");
  }
  if (layout.width == 0 || layout.height == 0 || layout.slices == 0 ||
      (format.planes && (layout.height % 2 != 0 || desc.type != ZE_IMAGE_TYPE_2D))) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "an image of this layout cannot have these sides");
  }
  if (layout.width > largest_image_side || layout.height > largest_image_side || layout.slices > largest_image_depth) {
    throw Failure(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, "the image is larger than the device's may be");
  }
  const size_t row = layout.width * format.element;
  layout.pitch = (row + pitch_step - 1) / pitch_step * pitch_step;
  layout.slice = layout.pitch * (format.planes ? layout.height + layout.height / 2 : layout.height);
  layout.size = layout.slice * layout.slices;
  return layout;
}

}  // namespace softdriver
