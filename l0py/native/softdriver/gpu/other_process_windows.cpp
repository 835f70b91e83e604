#include "other_process.hpp"
#include "windows_api.hpp"

namespace softdriver {

uint32_t this_process() noexcept { return GetCurrentProcessId(); }

Descriptor take_from_process(uint32_t process, SystemHandle handle) noexcept {
  if (process == this_process()) {
    return duplicate(handle);
  }
  const Descriptor other(OpenProcess(PROCESS_DUP_HANDLE, FALSE, process));
  HANDLE copy = nullptr;
  DuplicateHandle(other.get(), handle, GetCurrentProcess(), &copy, 0, FALSE, DUPLICATE_SAME_ACCESS);
  return Descriptor(copy);
}

}  // namespace softdriver
