// The drivers behind this loader, and the function tables that calls go through.
#pragma once

#include <cstdint>
#include <functional>

#include "loader_tables.hpp"

// Empty until a driver has accepted an init; every exported function reads its slot here. Then the one driver's own
// functions, or those in `routes` when there may be several.
extern Tables tables;

// For each function one that finds the driver that its handles belong to; generated.
extern const Tables routes;

// The answer for an empty slot: UNSUPPORTED_FEATURE when the driver lacks the function, UNINITIALIZED without a driver.
ze_result_t missing() noexcept;

// A slot may be filled, or emptied at exit, while other threads call.
template <class Slot>
Slot current(const Slot& slot) noexcept {
  return __atomic_load_n(&slot, __ATOMIC_ACQUIRE);
}

// What an init asks for, as bits.
enum Wanted : uint32_t { wanted_gpu = 1, wanted_npu = 2, wanted_sysman = 4 };
inline constexpr uint32_t wanted_any_type = wanted_gpu | wanted_npu;

// What is done with a driver. Made of a `std::cref`, which takes no memory: making one cannot fail.
using DriverCall = std::function<ze_result_t(const Tables& driver)>;

// Runs `init` with every driver, in their order. One that never accepted anything is not called again for what it has
// refused: that is fatal in some drivers. Succeeds when one does; else the first telling reason. Throws nothing.
ze_result_t initialize(uint32_t wanted, const DriverCall& init) noexcept;

// Calls each driver that has accepted an init. Succeeds when one does; else the first telling reason.
ze_result_t ask_each(const DriverCall& call) noexcept;

// The drivers go away: from now on every call is answered here.
void forget_drivers() noexcept;
bool drivers_are_gone() noexcept;
