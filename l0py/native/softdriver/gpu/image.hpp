// Images: pictures in memory, row by row.
#pragma once

#include <memory>

#include "context.hpp"
#include "memory.hpp"
#include "object.hpp"

namespace softdriver {

// How an image lies in its memory. Rows lie apart by a multiple of a cache line, as in linear images of GPUs.
struct ImageLayout {
  size_t element;  // bytes of a pixel; 0 for formats of several planes, which no command copies
  uint64_t width;  // in pixels
  uint32_t height;
  uint32_t slices;  // the depth, or the layers of an array
  size_t pitch;
  size_t slice;
  size_t size;
};

// UNSUPPORTED_IMAGE_FORMAT, UNSUPPORTED_SIZE and INVALID_ARGUMENT for what cannot be an image.
ImageLayout image_layout(const ze_image_desc_t& desc);

class Image final : public Object {
 public:
  using Handle = ze_image_handle_t;
  static constexpr Kind kind_of = Kind::image;
  Image(std::shared_ptr<Context> context, const ImageLayout& layout, std::shared_ptr<Allocation> block)
      : Object(kind_of), context(std::move(context)), layout(layout), block(std::move(block)) {}

  const std::shared_ptr<Context> context;
  const ImageLayout layout;
  const std::shared_ptr<Allocation> block;
};

inline constexpr uint32_t largest_image_side = 16384;
inline constexpr uint32_t largest_image_depth = 2048;

}  // namespace softdriver
