// Commands on memory: copies, fills and time stamps.
#include <algorithm>
#include <cstring>
#include <vector>

#include "behaviour.hpp"
#include "device.hpp"
#include "memory_range.hpp"
#include "softdriver_functions.hpp"

namespace softdriver {
namespace {

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
  Fill(Range to, const std::byte* pattern, size_t length) : to_(std::move(to)), pattern_(pattern, pattern + length) {}
  // Doubles what is already filled until all is.
  void run() override {
    size_t filled = std::min(pattern_.size(), to_.size);
    std::memcpy(to_.start, pattern_.data(), filled);
    while (filled < to_.size) {
      const size_t more = std::min(filled, to_.size - filled);
      std::memcpy(to_.start + filled, to_.start, more);
      filled += more;
    }
  }

 private:
  const Range to_;
  const std::vector<std::byte> pattern_;
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
  const auto* bytes = &require(static_cast<const std::byte*>(pattern), "pattern");
  const size_t longest = identity.queue_groups[found->ordinal].max_fill_pattern;
  if (pattern_size == 0 || pattern_size > longest || (pattern_size & (pattern_size - 1)) != 0) {
    throw Failure(ZE_RESULT_ERROR_INVALID_SIZE,
                  "a fill pattern has 1, 2, 4, ... bytes, at most " + std::to_string(longest));
  }
  auto range = find_writable(*found, to, size, ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
  found->append(std::make_shared<Fill>(std::move(range), bytes, pattern_size), signal, wait_count, waits);
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
