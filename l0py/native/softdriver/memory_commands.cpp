// Commands on memory: copies, fills and time stamps.
#include <algorithm>
#include <cstring>

#include "command_list.hpp"
#include "device.hpp"
#include "softdriver_functions.hpp"

namespace softdriver {
namespace {

// A piece of an allocation, which lives as long as the piece does.
struct Range {
  std::shared_ptr<Allocation> block;
  std::byte* start;
  size_t size;
};

// Memory that the context does not know is no memory of the device's. Each function of the NPU's driver has its own
// result for that, `unknown`; a range that leaves its allocation is UNINITIALIZED for all of them.
Range find_range(const CommandList& list, const void* address, size_t size, ze_result_t unknown) {
  auto block = list.context->allocations.find(address);
  if (block == nullptr) {
    throw Failure(unknown, "memory that was not allocated or imported in the list's context");
  }
  if (!block->holds(address, size)) {
    throw Failure(ZE_RESULT_ERROR_UNINITIALIZED, "the range ends past the end of its allocation");
  }
  return {std::move(block), static_cast<std::byte*>(const_cast<void*>(address)), size};
}

Range find_writable(const CommandList& list, void* address, size_t size, ze_result_t unknown) {
  Range range = find_range(list, address, size, unknown);
  if (range.block->read_only) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "the memory was imported for reading only");
  }
  return range;
}

class Copy final : public Command {
 public:
  Copy(Range to, Range from) : to_(std::move(to)), from_(std::move(from)) {}
  void run() override { std::memmove(to_.start, from_.start, to_.size); }

 private:
  const Range to_;
  const Range from_;
};

class Fill final : public Command {
 public:
  Fill(Range to, const void* pattern, size_t length) : to_(std::move(to)), length_(length) {
    std::memcpy(pattern_, pattern, length);
  }
  // Doubles what is already filled until all is.
  void run() override {
    size_t filled = std::min(length_, to_.size);
    std::memcpy(to_.start, pattern_, filled);
    while (filled < to_.size) {
      const size_t more = std::min(filled, to_.size - filled);
      std::memcpy(to_.start + filled, to_.start, more);
      filled += more;
    }
  }

 private:
  const Range to_;
  const size_t length_;
  std::byte pattern_[max_fill_pattern] = {};
};

class WriteTimestamp final : public Command {
 public:
  explicit WriteTimestamp(Range to) : to_(std::move(to)) {}
  void run() override {
    const uint64_t ticks = device_ticks();
    std::memcpy(to_.start, &ticks, sizeof ticks);
  }

 private:
  const Range to_;
};

}  // namespace

ze_result_t api::zeCommandListAppendMemoryCopy(ze_command_list_handle_t list, void* to, const void* from, size_t size,
                                               ze_event_handle_t signal, uint32_t wait_count,
                                               ze_event_handle_t* waits) {
  const auto found = find<CommandList>(list);
  require(static_cast<std::byte*>(to), "dstptr");
  require(static_cast<const std::byte*>(from), "srcptr");
  auto command = std::make_shared<Copy>(find_writable(*found, to, size, ZE_RESULT_ERROR_UNINITIALIZED),
                                        find_range(*found, from, size, ZE_RESULT_ERROR_UNINITIALIZED));
  found->append(std::move(command), signal, wait_count, waits);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandListAppendMemoryFill(ze_command_list_handle_t list, void* to, const void* pattern,
                                               size_t pattern_size, size_t size, ze_event_handle_t signal,
                                               uint32_t wait_count, ze_event_handle_t* waits) {
  const auto found = find<CommandList>(list);
  require(static_cast<std::byte*>(to), "ptr");
  require(static_cast<const std::byte*>(pattern), "pattern");
  if (pattern_size != 1 && pattern_size != 2 && pattern_size != max_fill_pattern) {
    throw Failure(ZE_RESULT_ERROR_INVALID_SIZE, "a fill pattern has 1, 2 or 4 bytes");
  }
  auto range = find_writable(*found, to, size, ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
  found->append(std::make_shared<Fill>(std::move(range), pattern, pattern_size), signal, wait_count, waits);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandListAppendWriteGlobalTimestamp(ze_command_list_handle_t list, uint64_t* to,
                                                         ze_event_handle_t signal, uint32_t wait_count,
                                                         ze_event_handle_t* waits) {
  const auto found = find<CommandList>(list);
  require(reinterpret_cast<std::byte*>(to), "dstptr");  // it need not be aligned
  auto range = find_writable(*found, to, sizeof(uint64_t), ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
  found->append(std::make_shared<WriteTimestamp>(std::move(range)), signal, wait_count, waits);
  return ZE_RESULT_SUCCESS;
}

}  // namespace softdriver
