#include "environment.hpp"

#include <cstdlib>
#include <new>

namespace platform {

std::string environment(const char* name) noexcept try {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
} catch (const std::bad_alloc&) {
  return "";
}

}  // namespace platform
