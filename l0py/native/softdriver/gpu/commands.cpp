// Commands on memory that the GPU's driver has and the NPU's has not.
#include "box_copy.hpp"
#include "device.hpp"
#include "softdriver_functions.hpp"

namespace softdriver {
namespace {

// A box of bytes in memory. All from the address to the box's last byte must be the address's own memory.
Box find_box(const CommandList& list, void* address, const ze_copy_region_t& region, uint32_t pitch, uint32_t slice,
             bool written) {
  const size_t offset = size_t{region.originZ} * slice + size_t{region.originY} * pitch + region.originX;
  const size_t depth = region.depth == 0 ? 1 : region.depth;
  const bool empty = region.width == 0 || region.height == 0;
  const size_t bytes = empty ? 0 : (depth - 1) * slice + (size_t{region.height} - 1) * pitch + region.width;
  // Each product fits, but their sum may not.
  for (size_t reach :
       {size_t{region.originZ} * slice, size_t{region.originY} * pitch, depth * slice, size_t{region.height} * pitch}) {
    if (reach > SIZE_MAX / 8) {
      throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "the region is larger than any memory");
    }
  }
  Range range = written ? find_writable(list, address, offset + bytes, ZE_RESULT_ERROR_INVALID_ARGUMENT)
                        : find_range(list, address, offset + bytes, ZE_RESULT_ERROR_INVALID_ARGUMENT);
  return {{std::move(range.block), range.start + offset, bytes}, pitch, slice};
}

}  // namespace

ze_result_t api::zeCommandListAppendMemoryCopyRegion(ze_command_list_handle_t list, void* to,
                                                     const ze_copy_region_t* to_region, uint32_t to_pitch,
                                                     uint32_t to_slice, const void* from,
                                                     const ze_copy_region_t* from_region, uint32_t from_pitch,
                                                     uint32_t from_slice, ze_event_handle_t signal, uint32_t wait_count,
                                                     ze_event_handle_t* waits) {
  const auto found = find<CommandList>(list);
  require(to, "dstptr");
  require(from, "srcptr");
  const auto& target = require(to_region, "dstRegion");
  const auto& source = require(from_region, "srcRegion");
  if (target.width != source.width || target.height != source.height || target.depth != source.depth) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "the two regions differ in size");
  }
  const BoxSize size{source.width, source.height, source.depth == 0 ? 1U : source.depth};
  auto command =
      std::make_shared<BoxCopy>(find_box(*found, to, target, to_pitch, to_slice, true),
                                find_box(*found, const_cast<void*>(from), source, from_pitch, from_slice, false), size);
  found->append(std::move(command), signal, wait_count, waits);
  return ZE_RESULT_SUCCESS;
}

// The source may be memory of another context, which keeps it alive.
ze_result_t api::zeCommandListAppendMemoryCopyFromContext(ze_command_list_handle_t list, void* to,
                                                          ze_context_handle_t context, const void* from, size_t size,
                                                          ze_event_handle_t signal, uint32_t wait_count,
                                                          ze_event_handle_t* waits) {
  const auto found = find<CommandList>(list);
  require(to, "dstptr");
  require(from, "srcptr");
  const auto block = find<Context>(context)->allocations.find(from);
  if (block == nullptr || !block->holds(from, size)) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "not memory of the source's context");
  }
  auto* start = static_cast<std::byte*>(const_cast<void*>(from));
  auto command = std::make_shared<BoxCopy>(Box{find_writable(*found, to, size, ZE_RESULT_ERROR_INVALID_ARGUMENT), 0, 0},
                                           Box{{block, start, size}, 0, 0}, BoxSize{size, 1, 1});
  found->append(std::move(command), signal, wait_count, waits);
  return ZE_RESULT_SUCCESS;
}

// Each command ends before the next begins, so there is nothing more to wait for.
ze_result_t api::zeCommandListAppendMemoryRangesBarrier(ze_command_list_handle_t list, uint32_t, const size_t* sizes,
                                                        const void** ranges, ze_event_handle_t signal,
                                                        uint32_t wait_count, ze_event_handle_t* waits) {
  const auto found = find<CommandList>(list);
  require(sizes, "pRangeSizes");
  require(ranges, "pRanges");
  found->append(nullptr, signal, wait_count, waits);
  return ZE_RESULT_SUCCESS;
}

// Hints about where memory shall lie; there is one place.
ze_result_t api::zeCommandListAppendMemoryPrefetch(ze_command_list_handle_t list, const void* address, size_t) {
  find<CommandList>(list);
  require(address, "ptr");
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandListAppendMemAdvise(ze_command_list_handle_t list, ze_device_handle_t device,
                                              const void* address, size_t, ze_memory_advice_t) {
  find<CommandList>(list);
  find<Device>(device);
  require(address, "ptr");
  return ZE_RESULT_SUCCESS;
}

}  // namespace softdriver
