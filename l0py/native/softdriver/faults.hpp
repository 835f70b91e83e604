// Calls that were told to fail.
#pragma once

#include <atomic>
#include <cstdint>

#include "level_zero.h"
#include "softdriver_functions.hpp"

namespace softdriver {

extern std::atomic<bool> faults_armed;
bool take_armed_fault(Function function, ze_result_t* result) noexcept;

// True when this call of `function` shall fail; `*result` is then its answer.
inline bool take_fault(Function function, ze_result_t* result) noexcept {
  return faults_armed.load(std::memory_order_relaxed) && take_armed_fault(function, result);
}

// Fails the calls number `after` .. `after + count - 1` counted from now (count 0: all from `after` on).
// False when there is no such function.
bool inject_fault(const char* function, uint64_t after, ze_result_t result, uint64_t count);
void clear_faults() noexcept;

}  // namespace softdriver
