// The software NPU: one driver with one device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "object.hpp"

namespace softdriver {

// What newer versions add to the core API (the `zer` functions first of all) is not here.
inline constexpr ze_api_version_t api_version = ZE_API_VERSION_1_13;
inline constexpr uint32_t graph_extension_version = ZE_GRAPH_EXT_VERSION_1_16;

inline constexpr uint32_t memory_count = 1;
inline constexpr uint32_t queue_group_count = 1;
inline constexpr size_t max_fill_pattern = 4;

class Driver final : public Object {
 public:
  using Handle = ze_driver_handle_t;
  static constexpr Kind kind_of = Kind::driver;
  Driver() : Object(kind_of) {}
};

class Device final : public Object {
 public:
  using Handle = ze_device_handle_t;
  static constexpr Kind kind_of = Kind::device;
  Device() : Object(kind_of) {}
};

// Made at the first init, never destroyed. Before init: UNINITIALIZED.
Driver& the_driver();
Device& the_device();

// The device's memory is the machine's: no more than that can be allocated at once.
uint64_t device_memory_size() noexcept;
inline uint64_t max_allocation_size() noexcept { return device_memory_size(); }

// The device's clock, which all its timestamps are of: nanoseconds.
uint64_t device_ticks() noexcept;
inline constexpr uint64_t device_ticks_per_second = 1'000'000'000;

// The two-call pattern: room for 0 asks for the number; the answer is how many entries to fill.
template <class T>
uint32_t entries_to_fill(uint32_t* count, const T* entries, uint32_t available) {
  uint32_t& room = require(count, "pCount");
  const bool asks = room == 0 || entries == nullptr;
  if (room == 0 || room > available) {
    room = available;
  }
  return asks ? 0 : room;
}

}  // namespace softdriver
