#include <cstdio>

#include "system.hpp"
#include "windows_api.hpp"

#include <psapi.h>

namespace check {

void* open_library(const char* path) {
  const HMODULE library = path == nullptr ? GetModuleHandleA(nullptr) : LoadLibraryA(path);
  if (library == nullptr) {
    std::fprintf(stderr, "%s: error %lu\n", path, GetLastError());
  }
  return library;
}

void* find_symbol(void* library, const char* name) {
  return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(library), name));
}

size_t open_descriptors() { return 0; }

size_t mapped_blocks() {
  size_t count = 0;
  MEMORY_BASIC_INFORMATION region;
  for (char* at = nullptr; VirtualQuery(at, &region, sizeof region) != 0; at += region.RegionSize) {
    char file[MAX_PATH];
    const bool begins = region.Type == MEM_MAPPED && region.BaseAddress == region.AllocationBase;
    // What the system itself maps has files behind it.
    count += begins && GetMappedFileNameA(GetCurrentProcess(), at, file, sizeof file) == 0 ? 1 : 0;
  }
  return count;
}

}  // namespace check
