// Memory that small allocations share, and with it one descriptor: GPU drivers have such pools.
#pragma once

#include <cstddef>
#include <map>
#include <memory>

#include "level_zero.h"
#include "pages.hpp"

namespace softdriver {

class Pool {
 public:
  static constexpr size_t size = size_t{2} << 20;
  static constexpr size_t largest = size_t{1} << 20;  // that an allocation in it may be

  // A pool of that type of memory with room for so many bytes, which `take` has given to the caller.
  static std::shared_ptr<Pool> with_room(ze_memory_type_t type, size_t bytes, size_t alignment, std::byte** piece);

  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  void give_back(std::byte* piece) noexcept;
  SystemHandle handle() const noexcept { return memory_.get(); }
  size_t offset(const std::byte* piece) const noexcept { return static_cast<size_t>(piece - base_); }

 private:
  Pool(ze_memory_type_t type);
  // Zeroed memory, or null when there is no room. Under Lock::pools, as all below.
  std::byte* take(size_t bytes, size_t alignment);

  const ze_memory_type_t type_;
  Descriptor memory_;
  std::byte* base_ = nullptr;
  std::map<size_t, size_t> taken_;  // sizes by offset
};

}  // namespace softdriver
