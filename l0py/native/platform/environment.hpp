// The process's environment, as it is now.
#pragma once

#include <string>

namespace platform {

// Empty when there is no such variable. On Windows the C library's copies are older than what Python has set.
std::string environment(const char* name) noexcept;

}  // namespace platform
