#include "memory_range.hpp"

#include "behaviour.hpp"

namespace softdriver {

Range find_range(const CommandList& list, const void* address, size_t size, ze_result_t unknown) {
  auto* start = static_cast<std::byte*>(const_cast<void*>(address));
  auto block = list.context->allocations.find(address);
  if (block == nullptr && behaviour().host_pointers) {
    return {nullptr, start, size};
  }
  if (block == nullptr) {
    throw Failure(unknown, "memory that was not allocated or imported in the list's context");
  }
  if (!block->holds(address, size)) {
    throw Failure(ZE_RESULT_ERROR_UNINITIALIZED, "the range ends past the end of its allocation");
  }
  if (block->no_access) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "the memory was mapped without access");
  }
  return {std::move(block), start, size};
}

Range find_writable(const CommandList& list, void* address, size_t size, ze_result_t unknown) {
  Range range = find_range(list, address, size, unknown);
  if (range.block != nullptr && range.block->read_only) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "the memory may only be read");
  }
  return range;
}

}  // namespace softdriver
