// Pages of shared memory at addresses that were reserved before.
#pragma once

#include "pages.hpp"

namespace softdriver {

// Puts memory there; false on failure, and `system_error_text` says why.
bool place_pages(std::byte* at, SystemHandle memory, size_t offset, size_t bytes) noexcept;
// Makes the range what it was when it was reserved.
bool clear_pages(std::byte* at, size_t bytes) noexcept;
// Gives a reserved range up, and all that lies in it.
void release_addresses(std::byte* base, size_t bytes) noexcept;

}  // namespace softdriver
