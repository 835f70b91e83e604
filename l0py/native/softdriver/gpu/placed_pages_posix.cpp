#include <sys/mman.h>

#include "placed_pages.hpp"

namespace softdriver {

bool place_pages(std::byte* at, SystemHandle memory, size_t offset, size_t bytes) noexcept {
  constexpr int protection = PROT_READ | PROT_WRITE;
  return mmap(at, bytes, protection, MAP_SHARED | MAP_FIXED, memory, static_cast<off_t>(offset)) != MAP_FAILED;
}

bool clear_pages(std::byte* at, size_t bytes) noexcept {
  return mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

void release_addresses(std::byte* base, size_t bytes) noexcept { munmap(base, bytes); }

}  // namespace softdriver
