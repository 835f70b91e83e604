// The one driver behind this loader, and its function tables.
#pragma once

#include <cstdint>
#include <functional>

#include "loader_tables.hpp"

// Empty until a driver has accepted an init; every forwarded call reads its slot here.
extern Tables tables;

// The answer for an empty slot: UNSUPPORTED_FEATURE when the driver lacks the function, UNINITIALIZED without a driver.
ze_result_t missing() noexcept;

// A slot may be filled, or emptied at exit, while other threads call.
template <class Slot>
Slot current(const Slot& slot) noexcept {
  return __atomic_load_n(&slot, __ATOMIC_ACQUIRE);
}

// What an init asks for, as bits.
enum Wanted : uint32_t { wanted_gpu = 1, wanted_npu = 2, wanted_sysman = 4 };

// Made of a `std::cref`, which takes no memory: making one cannot fail.
using DriverInit = std::function<ze_result_t(const Tables& driver)>;

// Runs `init` with the chosen driver. The first time, that is the first driver found for which it succeeds. A driver
// that failed is not called again for anything it has refused: that is fatal in some drivers. Throws nothing.
ze_result_t initialize(uint32_t wanted, const DriverInit& init) noexcept;

// The driver goes away: from now on every call is answered here.
void forget_driver() noexcept;
bool driver_is_gone() noexcept;
