// One driver with one device; the directory of each driver says what they are.
#pragma once

#include <cstddef>
#include <cstdint>

#include "object.hpp"

namespace softdriver {

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
inline constexpr uint32_t memory_count = 1;

// The device's clock, which all its timestamps are of: nanoseconds.
uint64_t device_ticks() noexcept;
inline constexpr uint64_t device_ticks_per_second = 1'000'000'000;

// Fills in a device's properties: what each has of its `own`, and what all have.
void tell_device(ze_device_properties_t* properties, ze_device_properties_t own, const ze_device_luid_ext_t& luid);

}  // namespace softdriver
