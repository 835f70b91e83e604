// Pages of memory as the operating system gives and shares them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace softdriver {

inline constexpr size_t page_size = 4096;

constexpr size_t round_to_pages(size_t bytes) noexcept { return (bytes + page_size - 1) / page_size * page_size; }

// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) noexcept : number_(number) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;

  int get() const noexcept { return number_; }
  bool valid() const noexcept { return number_ >= 0; }
  int release() noexcept;

 private:
  int number_;
};

// The functions below answer an invalid descriptor, null or false on failure, and say why in `errno`.

// New shareable memory of fixed size, zeroed.
Descriptor create_memory(size_t bytes) noexcept;
// Another descriptor of the same memory, close-on-exec, never 0, 1 or 2.
Descriptor duplicate(int descriptor) noexcept;
// How much memory a descriptor stands for; 0 when it stands for none (a pipe, a file on a disk, a closed one).
size_t memory_size(int descriptor) noexcept;

std::byte* map_pages(int descriptor, size_t bytes, size_t alignment, bool writable) noexcept;
void unmap_pages(std::byte* base, size_t bytes) noexcept;
// A range of addresses that nothing else will have and nobody can read or write; 0 on failure.
uintptr_t reserve_addresses(size_t bytes) noexcept;

// Whether the whole range is memory that may be read (and written), brought in as a device's pinning would.
bool pin_pages(const void* address, size_t bytes, bool writable) noexcept;
// Whether a few bytes can be read without a fault.
bool is_readable(const void* address, size_t bytes) noexcept;

uint64_t physical_memory() noexcept;
// What `errno` says.
std::string system_error_text();

}  // namespace softdriver
