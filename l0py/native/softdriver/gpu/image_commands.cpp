// Copies between images and memory.
#include "box_copy.hpp"
#include "image.hpp"
#include "softdriver_functions.hpp"

namespace softdriver {
namespace {

// The whole image where there is no region.
ze_image_region_t region_of(const Image& image, const ze_image_region_t* wanted) {
  const ImageLayout& layout = image.layout;
  if (layout.element == 0) {
    throw Failure(ZE_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT, "images of several planes are not copied");
  }
  if (wanted == nullptr) {
    return {0, 0, 0, static_cast<uint32_t>(layout.width), layout.height, layout.slices};
  }
  ze_image_region_t region = *wanted;
  region.height = region.height == 0 ? 1 : region.height;
  region.depth = region.depth == 0 ? 1 : region.depth;
  if (uint64_t{region.originX} + region.width > layout.width ||
      uint64_t{region.originY} + region.height > layout.height ||
      uint64_t{region.originZ} + region.depth > layout.slices) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "the region leaves the image");
  }
  return region;
}

BoxSize size_of(const Image& image, const ze_image_region_t& region) {
  return {region.width * image.layout.element, region.height, region.depth};
}

Box box_of(const Image& image, const ze_image_region_t& region) {
  const ImageLayout& layout = image.layout;
  const size_t offset = region.originZ * layout.slice + region.originY * layout.pitch + region.originX * layout.element;
  return {{image.block, image.block->base + offset, layout.size - offset}, layout.pitch, layout.slice};
}

// Memory beside an image: without pitches its rows follow each other.
Box box_of(const CommandList& list, void* address, const BoxSize& size, size_t pitch, size_t slice, bool written) {
  const size_t row_step = pitch != 0 ? pitch : size.row;
  const size_t slice_step = slice != 0 ? slice : row_step * size.rows;
  if (row_step < size.row || slice_step < row_step * size.rows) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "a pitch is smaller than a row or a slice");
  }
  const size_t bytes = (size.slices - 1) * slice_step + (size.rows - 1) * row_step + size.row;
  return {written ? find_writable(list, address, bytes, ZE_RESULT_ERROR_INVALID_ARGUMENT)
                  : find_range(list, address, bytes, ZE_RESULT_ERROR_INVALID_ARGUMENT),
          row_step, slice_step};
}

}  // namespace

ze_result_t api::zeCommandListAppendImageCopyRegion(ze_command_list_handle_t list, ze_image_handle_t to,
                                                    ze_image_handle_t from, const ze_image_region_t* to_region,
                                                    const ze_image_region_t* from_region, ze_event_handle_t signal,
                                                    uint32_t wait_count, ze_event_handle_t* waits) {
  const auto found = find<CommandList>(list);
  const auto target = find<Image>(to);
  const auto source = find<Image>(from);
  const ze_image_region_t target_region = region_of(*target, to_region);
  const ze_image_region_t source_region = region_of(*source, from_region);
  const BoxSize size = size_of(*source, source_region);
  const BoxSize room = size_of(*target, target_region);
  if (size.row != room.row || size.rows != room.rows || size.slices != room.slices) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "the two regions differ in size");
  }
  auto command = std::make_shared<BoxCopy>(box_of(*target, target_region), box_of(*source, source_region), size);
  found->append(std::move(command), signal, wait_count, waits);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandListAppendImageCopy(ze_command_list_handle_t list, ze_image_handle_t to,
                                              ze_image_handle_t from, ze_event_handle_t signal, uint32_t wait_count,
                                              ze_event_handle_t* waits) {
  return api::zeCommandListAppendImageCopyRegion(list, to, from, nullptr, nullptr, signal, wait_count, waits);
}

ze_result_t api::zeCommandListAppendImageCopyToMemoryExt(ze_command_list_handle_t list, void* to,
                                                         ze_image_handle_t from, const ze_image_region_t* region,
                                                         uint32_t pitch, uint32_t slice, ze_event_handle_t signal,
                                                         uint32_t wait_count, ze_event_handle_t* waits) {
  const auto found = find<CommandList>(list);
  const auto image = find<Image>(from);
  require(to, "dstptr");
  const ze_image_region_t wanted = region_of(*image, region);
  const BoxSize size = size_of(*image, wanted);
  auto command = std::make_shared<BoxCopy>(box_of(*found, to, size, pitch, slice, true), box_of(*image, wanted), size);
  found->append(std::move(command), signal, wait_count, waits);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandListAppendImageCopyToMemory(ze_command_list_handle_t list, void* to, ze_image_handle_t from,
                                                      const ze_image_region_t* region, ze_event_handle_t signal,
                                                      uint32_t wait_count, ze_event_handle_t* waits) {
  return api::zeCommandListAppendImageCopyToMemoryExt(list, to, from, region, 0, 0, signal, wait_count, waits);
}

ze_result_t api::zeCommandListAppendImageCopyFromMemoryExt(ze_command_list_handle_t list, ze_image_handle_t to,
                                                           const void* from, const ze_image_region_t* region,
                                                           uint32_t pitch, uint32_t slice, ze_event_handle_t signal,
                                                           uint32_t wait_count, ze_event_handle_t* waits) {
  const auto found = find<CommandList>(list);
  const auto image = find<Image>(to);
  require(from, "srcptr");
  const ze_image_region_t wanted = region_of(*image, region);
  const BoxSize size = size_of(*image, wanted);
  auto command = std::make_shared<BoxCopy>(box_of(*image, wanted),
                                           box_of(*found, const_cast<void*>(from), size, pitch, slice, false), size);
  found->append(std::move(command), signal, wait_count, waits);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandListAppendImageCopyFromMemory(ze_command_list_handle_t list, ze_image_handle_t to,
                                                        const void* from, const ze_image_region_t* region,
                                                        ze_event_handle_t signal, uint32_t wait_count,
                                                        ze_event_handle_t* waits) {
  return api::zeCommandListAppendImageCopyFromMemoryExt(list, to, from, region, 0, 0, signal, wait_count, waits);
}

}  // namespace softdriver
