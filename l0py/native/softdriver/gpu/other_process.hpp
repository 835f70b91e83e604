// Handles of shared memory that another process has.
#pragma once

#include <cstdint>

#include "pages.hpp"

namespace softdriver {

uint32_t this_process() noexcept;
// A descriptor of what a process has open under a number: our own or another's, which must let itself be looked at
// (as for a debugger). Invalid on failure.
Descriptor take_from_process(uint32_t process, SystemHandle handle) noexcept;

}  // namespace softdriver
