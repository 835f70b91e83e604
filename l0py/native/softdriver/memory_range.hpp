// Memory that a command reads or writes.
#pragma once

#include <cstddef>
#include <memory>

#include "command_list.hpp"

namespace softdriver {

// A piece of an allocation, which lives as long as the piece does; without a block, of the host's own memory.
struct Range {
  std::shared_ptr<Allocation> block;
  std::byte* start;
  size_t size;
};

// Memory that the context does not know is no memory of the device's, unless the driver takes it for the host's. Each
// function of the NPU's driver has its own result for that, `unknown`; a range that leaves its allocation is
// UNINITIALIZED for all of them.
Range find_range(const CommandList& list, const void* address, size_t size, ze_result_t unknown);
Range find_writable(const CommandList& list, void* address, size_t size, ze_result_t unknown);

}  // namespace softdriver
