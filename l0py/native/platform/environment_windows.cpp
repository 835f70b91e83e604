#include "environment.hpp"

#include <new>

#include "windows_text.hpp"

namespace platform {

std::string environment(const char* name) noexcept try {
  const std::wstring wide = widen(name);
  std::wstring value;
  // With room enough it answers the length without the final zero, else what it needs.
  for (DWORD needed = GetEnvironmentVariableW(wide.c_str(), nullptr, 0); needed > value.size();) {
    value.resize(needed);
    needed = GetEnvironmentVariableW(wide.c_str(), value.data(), needed);
    if (needed < value.size()) {
      value.resize(needed);
      return narrow(value);
    }
  }
  return "";
} catch (const std::bad_alloc&) {
  return "";
}

}  // namespace platform
