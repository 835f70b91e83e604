// Pages of memory as the operating system gives and shares them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace softdriver {

inline constexpr size_t page_size = 4096;

constexpr size_t round_to_pages(size_t bytes) noexcept { return (bytes + page_size - 1) / page_size * page_size; }

// What the system calls memory by that processes can share: a file descriptor, or the NT handle of a section.
#ifdef _WIN32
using SystemHandle = void*;
inline constexpr SystemHandle no_handle = nullptr;
#else
using SystemHandle = int;
inline constexpr SystemHandle no_handle = -1;
#endif

// One that closes itself.
class Descriptor {
 public:
  explicit Descriptor(SystemHandle handle = no_handle) noexcept : handle_(handle) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : handle_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  SystemHandle get() const noexcept { return handle_; }
  bool valid() const noexcept { return handle_ != no_handle; }
  SystemHandle release() noexcept { return std::exchange(handle_, no_handle); }

 private:
  SystemHandle handle_;
};

// The functions below answer an invalid descriptor, null or false on failure; `system_error_text` says why.

// New shareable memory of fixed size, zeroed.
Descriptor create_memory(size_t bytes) noexcept;
// Another descriptor of the same memory, which other programs do not inherit; never 0, 1 or 2.
Descriptor duplicate(SystemHandle handle) noexcept;
// How much memory a descriptor stands for; 0 when it stands for none (a pipe, a file on a disk, a closed one).
size_t memory_size(SystemHandle handle) noexcept;

std::byte* map_pages(SystemHandle handle, size_t bytes, size_t alignment, bool writable) noexcept;
void unmap_pages(std::byte* base, size_t bytes) noexcept;
// A range of addresses that nothing else will have and nobody can read or write; 0 on failure.
uintptr_t reserve_addresses(size_t bytes) noexcept;

// Whether the whole range is memory that may be read (and written), brought in as a device's pinning would.
bool pin_pages(const void* address, size_t bytes, bool writable) noexcept;
// Whether a few bytes can be read without a fault.
bool is_readable(const void* address, size_t bytes) noexcept;

uint64_t physical_memory() noexcept;
// Why the system refused this thread's last call.
std::string system_error_text();

}  // namespace softdriver
