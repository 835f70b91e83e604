#include "placed_pages.hpp"
#include "windows_api.hpp"

namespace softdriver {

// Sections cannot be mapped into a range that is merely reserved: that takes placeholders (Windows 10, 1803), and a
// driver for them has not been written. The software GPU offers no virtual memory on Windows.
bool place_pages(std::byte*, SystemHandle, size_t, size_t) noexcept { return false; }

bool clear_pages(std::byte*, size_t) noexcept { return false; }

void release_addresses(std::byte* base, size_t) noexcept { VirtualFree(base, 0, MEM_RELEASE); }

}  // namespace softdriver
