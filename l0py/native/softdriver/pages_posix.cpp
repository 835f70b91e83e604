#include "pages.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

// Newer than the headers of some systems that this is built on.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef DMA_BUF_MAGIC
#define DMA_BUF_MAGIC 0x444d4142
#endif

namespace softdriver {
namespace {

// Descriptors below are standard streams: memory there would be written to by whoever prints.
constexpr int first_free_descriptor = 3;

std::byte* map_anywhere(int descriptor, size_t bytes, int protection) noexcept {
  void* base = mmap(nullptr, bytes, protection, MAP_SHARED, descriptor, 0);
  return base == MAP_FAILED ? nullptr : static_cast<std::byte*>(base);
}

void* reserve(size_t bytes) noexcept {
  void* whole = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return whole == MAP_FAILED ? nullptr : whole;
}

// Reserves more than asked, maps at the aligned address in it and gives the rest back.
std::byte* map_aligned(int descriptor, size_t bytes, size_t alignment, int protection) noexcept {
  const size_t length = round_to_pages(bytes);
  const size_t reserved = length + alignment;
  void* whole = reserve(reserved);
  if (whole == nullptr) {
    return nullptr;
  }
  auto* start = static_cast<std::byte*>(whole);
  auto address = reinterpret_cast<uintptr_t>(whole);
  std::byte* base = start + ((address + alignment - 1) / alignment * alignment - address);
  if (mmap(base, bytes, protection, MAP_SHARED | MAP_FIXED, descriptor, 0) == MAP_FAILED) {
    const int error = errno;
    munmap(whole, reserved);
    errno = error;
    return nullptr;
  }
  if (base > start) {
    munmap(start, static_cast<size_t>(base - start));
  }
  std::byte* end = base + length;
  munmap(end, static_cast<size_t>(start + reserved - end));
  return base;
}

// Kernels before 5.14, and sandboxes, lack the advice that brings pages in.
bool kernel_can_populate() noexcept {
  static const bool known = [] {
    auto probe = reinterpret_cast<uintptr_t>(&page_size) / page_size * page_size;
    return madvise(reinterpret_cast<void*>(probe), page_size, MADV_POPULATE_READ) == 0;
  }();
  return known;
}

}  // namespace

Descriptor::~Descriptor() {
  if (valid()) {
    close(handle_);
  }
}

Descriptor create_memory(size_t bytes) noexcept {
  Descriptor memory(memfd_create("l0py", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (memory.valid() && memory.get() < first_free_descriptor) {
    memory = duplicate(memory.get());
  }
  if (!memory.valid() || ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0) {
    return Descriptor();
  }
  // As fixed as a device's buffer: a process that it was sent to must not be able to cut pages away from under us.
  if (fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Descriptor();
  }
  return memory;
}

Descriptor duplicate(SystemHandle handle) noexcept {
  return Descriptor(fcntl(handle, F_DUPFD_CLOEXEC, first_free_descriptor));
}

size_t memory_size(SystemHandle handle) noexcept {
  struct statfs system;
  struct stat status;
  if (fstatfs(handle, &system) != 0 || fstat(handle, &status) != 0) {
    return 0;
  }
  const auto kind = static_cast<unsigned long>(system.f_type);
  off_t bytes = 0;
  if (kind == DMA_BUF_MAGIC) {
    bytes = lseek(handle, 0, SEEK_END);  // its only use there: a dma-buf has no position
  } else if ((kind == TMPFS_MAGIC || kind == HUGETLBFS_MAGIC) && S_ISREG(status.st_mode)) {
    bytes = status.st_size;  // seeking would move a position that the caller shares
  }
  return bytes > 0 ? static_cast<size_t>(bytes) : 0;
}

std::byte* map_pages(SystemHandle handle, size_t bytes, size_t alignment, bool writable) noexcept {
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  return alignment <= page_size ? map_anywhere(handle, bytes, protection)
                                : map_aligned(handle, bytes, alignment, protection);
}

void unmap_pages(std::byte* base, size_t bytes) noexcept { munmap(base, bytes); }

uintptr_t reserve_addresses(size_t bytes) noexcept { return reinterpret_cast<uintptr_t>(reserve(bytes)); }

bool pin_pages(const void* address, size_t bytes, bool writable) noexcept {
  void* start = const_cast<void*>(address);
  if (madvise(start, bytes, writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0) {
    return true;
  }
  // Without that advice: at least no hole in the range, and both its ends readable.
  const auto* last = static_cast<const std::byte*>(address) + bytes - 1;
  return !kernel_can_populate() && msync(start, bytes, MS_ASYNC) == 0 && is_readable(address, 1) &&
         is_readable(last, 1);
}

bool is_readable(const void* address, size_t bytes) noexcept {
  std::byte copy[2 * sizeof(void*)];
  iovec to{copy, bytes < sizeof copy ? bytes : sizeof copy};
  iovec from{const_cast<void*>(address), to.iov_len};
  const ssize_t read = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
  // A sandbox may forbid the look; then nothing is known against the address.
  return read == static_cast<ssize_t>(to.iov_len) || (read < 0 && errno != EFAULT);
}

uint64_t physical_memory() noexcept {
  struct sysinfo information;
  return sysinfo(&information) == 0 ? static_cast<uint64_t>(information.totalram) * information.mem_unit : 0;
}

std::string system_error_text() { return std::generic_category().message(errno); }

}  // namespace softdriver
