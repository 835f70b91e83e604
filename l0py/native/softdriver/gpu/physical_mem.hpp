// Physical memory, which virtual addresses are given to.
#pragma once

#include <memory>

#include "context.hpp"
#include "memory.hpp"
#include "object.hpp"

namespace softdriver {

class PhysicalMem final : public Object {
 public:
  using Handle = ze_physical_mem_handle_t;
  static constexpr Kind kind_of = Kind::physical_mem;
  PhysicalMem(size_t size, std::shared_ptr<Allocation> block) : Object(kind_of), size(size), block(std::move(block)) {}

  bool of_host() const noexcept { return block->type == ZE_MEMORY_TYPE_HOST; }

  const size_t size;
  const std::shared_ptr<Allocation> block;  // what virtual memory maps lies behind its descriptor
};

// The pages that a device has for so many bytes, and the bytes in whole such pages.
size_t device_page_size(size_t bytes) noexcept;
size_t in_device_pages(size_t bytes) noexcept;

}  // namespace softdriver
