// What the driver was asked to do: calls (when switched on) and graph executions (always, the last few).
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "level_zero.h"
#include "softdriver_functions.hpp"

namespace softdriver {

extern std::atomic<bool> calls_recorded;
inline bool recording_calls() noexcept { return calls_recorded.load(std::memory_order_relaxed); }

void record_call(Function function, ze_result_t result, std::initializer_list<uint64_t> arguments) noexcept;
// One execution of a graph: its argument pointers in the graph's argument order, and the ids of the memory that each
// lies in, since addresses are used again.
void record_execution(uintptr_t graph, const std::vector<const void*>& arguments,
                      const std::vector<uint64_t>& memory) noexcept;

void start_recording() noexcept;
void stop_recording() noexcept;
void reset_record() noexcept;
// The whole record with the live objects and the memory figures, as one JSON object.
std::string record_json();

// Memory accounting, for the record and the limit.
struct MemoryFigures {
  uint64_t now, peak, limit;
};
// False when the limit forbids it (then nothing is counted).
bool account_memory(uint64_t bytes) noexcept;
void release_memory(uint64_t bytes) noexcept;
void set_memory_limit(uint64_t bytes) noexcept;
MemoryFigures memory_figures() noexcept;

}  // namespace softdriver
