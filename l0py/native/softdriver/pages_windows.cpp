#include <algorithm>

#include "pages.hpp"
#include "windows_text.hpp"

namespace softdriver {
namespace {

// Views begin at multiples of this, whatever is asked for.
constexpr size_t granularity = size_t{64} * 1024;

constexpr DWORD readable = PAGE_READONLY | PAGE_READWRITE | PAGE_WRITECOPY | PAGE_EXECUTE_READ |
                           PAGE_EXECUTE_READWRITE | PAGE_EXECUTE_WRITECOPY;
constexpr DWORD writable_too = PAGE_READWRITE | PAGE_WRITECOPY | PAGE_EXECUTE_READWRITE | PAGE_EXECUTE_WRITECOPY;

// Pages that follow one another and are alike; false behind the end of the address space.
bool region_at(const std::byte* address, MEMORY_BASIC_INFORMATION& region) noexcept {
  return VirtualQuery(address, &region, sizeof region) != 0;
}

// The bytes from the start of a view that are memory: none of a program's image, up to what was only reserved.
size_t view_size(const std::byte* base) noexcept {
  size_t bytes = 0;
  MEMORY_BASIC_INFORMATION region;
  while (region_at(base + bytes, region) && region.AllocationBase == base && region.State == MEM_COMMIT &&
         region.Type == MEM_MAPPED) {
    bytes += region.RegionSize;
  }
  return bytes;
}

// No call maps at an aligned address: one is found by reserving, given back, and asked for by its number. Another
// thread may take it in between.
std::byte* map_aligned(HANDLE section, size_t bytes, size_t alignment, DWORD access) noexcept {
  constexpr int attempts = 32;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const uintptr_t first = reserve_addresses(bytes + alignment);
    if (first == 0) {
      return nullptr;
    }
    VirtualFree(reinterpret_cast<void*>(first), 0, MEM_RELEASE);
    void* aligned = reinterpret_cast<void*>((first + alignment - 1) / alignment * alignment);
    if (void* base = MapViewOfFileEx(section, access, 0, 0, bytes, aligned)) {
      return static_cast<std::byte*>(base);
    }
    if (GetLastError() != ERROR_INVALID_ADDRESS) {
      return nullptr;
    }
  }
  return nullptr;
}

}  // namespace

Descriptor::~Descriptor() {
  if (valid()) {
    CloseHandle(handle_);
  }
}

Descriptor create_memory(size_t bytes) noexcept {
  const uint64_t size = bytes;
  return Descriptor(CreateFileMappingW(INVALID_HANDLE_VALUE, nullptr, PAGE_READWRITE, static_cast<DWORD>(size >> 32),
                                       static_cast<DWORD>(size), nullptr));
}

Descriptor duplicate(SystemHandle handle) noexcept {
  HANDLE copy = nullptr;
  DuplicateHandle(GetCurrentProcess(), handle, GetCurrentProcess(), &copy, 0, FALSE, DUPLICATE_SAME_ACCESS);
  return Descriptor(copy);
}

size_t memory_size(SystemHandle handle) noexcept {
  auto* view = static_cast<std::byte*>(MapViewOfFile(handle, FILE_MAP_READ, 0, 0, 0));
  if (view == nullptr) {
    return 0;
  }
  const size_t bytes = view_size(view);
  UnmapViewOfFile(view);
  return bytes;
}

std::byte* map_pages(SystemHandle handle, size_t bytes, size_t alignment, bool writable) noexcept {
  const DWORD access = writable ? FILE_MAP_READ | FILE_MAP_WRITE : FILE_MAP_READ;
  return alignment <= granularity ? static_cast<std::byte*>(MapViewOfFile(handle, access, 0, 0, bytes))
                                  : map_aligned(handle, bytes, alignment, access);
}

void unmap_pages(std::byte* base, size_t) noexcept { UnmapViewOfFile(base); }

uintptr_t reserve_addresses(size_t bytes) noexcept {
  return reinterpret_cast<uintptr_t>(VirtualAlloc(nullptr, bytes, MEM_RESERVE, PAGE_NOACCESS));
}

bool pin_pages(const void* address, size_t bytes, bool writable) noexcept {
  const DWORD enough = writable ? writable_too : readable;
  const auto* start = static_cast<const std::byte*>(address);
  for (size_t looked_at = 0; looked_at < bytes;) {
    MEMORY_BASIC_INFORMATION region;
    const std::byte* here = start + looked_at;
    if (!region_at(here, region) || region.State != MEM_COMMIT || (region.Protect & enough) == 0 ||
        (region.Protect & PAGE_GUARD) != 0) {
      return false;
    }
    looked_at += static_cast<size_t>(static_cast<std::byte*>(region.BaseAddress) + region.RegionSize - here);
  }
  return true;
}

bool is_readable(const void* address, size_t bytes) noexcept {
  std::byte copy[2 * sizeof(void*)];
  SIZE_T read = 0;
  return ReadProcessMemory(GetCurrentProcess(), address, copy, std::min(bytes, sizeof copy), &read) != 0;
}

uint64_t physical_memory() noexcept {
  MEMORYSTATUSEX status{};
  status.dwLength = sizeof status;
  return GlobalMemoryStatusEx(&status) != 0 ? status.ullTotalPhys : 0;
}

std::string system_error_text() { return platform::error_text(GetLastError()); }

}  // namespace softdriver
