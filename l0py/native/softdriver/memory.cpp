#include "memory.hpp"

#include <atomic>
#include <mutex>

#include "context.hpp"
#include "device.hpp"
#include "fork.hpp"
#include "record.hpp"
#include "softdriver_functions.hpp"

namespace softdriver {
namespace {

std::atomic<uint64_t> next_id{1};
std::atomic<uint64_t> live_blocks[3];

std::atomic<uint64_t>& live(Origin origin) noexcept { return live_blocks[static_cast<size_t>(origin)]; }

std::shared_ptr<Allocation> find_block(ze_context_handle_t context, const void* address) {
  require(address, "ptr");
  return find<Context>(context)->allocations.find(address);
}

// Not thrown: programs ask about every address of theirs, and an exception costs forty times the lookup.
ze_result_t unknown_address() noexcept {
  set_last_error("the context has no memory at this address");
  return ZE_RESULT_ERROR_NOT_AVAILABLE;
}

// The caller owns and closes what it gets: a new descriptor for every query.
int export_descriptor(const Allocation& block) {
  if (!block.descriptor.valid()) {
    throw Failure(ZE_RESULT_ERROR_NOT_AVAILABLE, "the memory was not allocated for export");
  }
  Descriptor copy = duplicate(block.descriptor.get());
  if (!copy.valid()) {
    throw Failure(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, "no new descriptor: " + system_error_text());
  }
  return copy.release();
}

}  // namespace

Allocation::Allocation(Origin origin) noexcept : origin(origin), id(next_id.fetch_add(1, std::memory_order_relaxed)) {
  live(origin).fetch_add(1, std::memory_order_relaxed);
}

Allocation::~Allocation() {
  if (mapped != 0) {
    unmap_pages(base, mapped);
  }
  release_memory(accounted);
  live(origin).fetch_sub(1, std::memory_order_relaxed);
}

bool Allocation::holds(const void* address, size_t bytes) const noexcept {
  const auto first = reinterpret_cast<uintptr_t>(base);
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  return wanted >= first && wanted - first <= size && bytes <= size - (wanted - first);
}

Allocations::Blocks::const_iterator Allocations::first_behind(uintptr_t address) const {
  auto next = blocks_.upper_bound(address);
  if (next != blocks_.begin()) {
    auto previous = std::prev(next);
    if (address - previous->first < previous->second->size) {
      return previous;
    }
  }
  return next;
}

bool Allocations::overlaps(const Allocation& block) const {
  const auto first = reinterpret_cast<uintptr_t>(block.base);
  auto found = first_behind(first);
  return found != blocks_.end() && found->first < first + block.size;
}

void Allocations::add(std::shared_ptr<Allocation> block) {
  const auto first = reinterpret_cast<uintptr_t>(block->base);
  std::lock_guard lock(process_lock(Lock::allocations));
  while (overlaps(*block)) {
    blocks_.erase(first_behind(first));
  }
  blocks_.emplace(first, std::move(block));
}

bool Allocations::add_import(std::shared_ptr<Allocation> block) {
  std::lock_guard lock(process_lock(Lock::allocations));
  if (overlaps(*block)) {
    return false;
  }
  blocks_.emplace(reinterpret_cast<uintptr_t>(block->base), std::move(block));
  return true;
}

std::shared_ptr<Allocation> Allocations::find(const void* address) const {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  std::lock_guard lock(process_lock(Lock::allocations));
  auto found = first_behind(wanted);
  return found != blocks_.end() && found->first <= wanted ? found->second : nullptr;
}

std::shared_ptr<Allocation> Allocations::take(const void* base) {
  std::lock_guard lock(process_lock(Lock::allocations));
  auto found = blocks_.find(reinterpret_cast<uintptr_t>(base));
  if (found == blocks_.end()) {
    return nullptr;
  }
  auto block = std::move(found->second);
  blocks_.erase(found);
  return block;
}

void Allocations::clear() {
  Blocks forgotten;  // dies without the lock: unmapping takes long
  std::lock_guard lock(process_lock(Lock::allocations));
  forgotten.swap(blocks_);
}

BlockFigures block_figures() noexcept {
  return {live(Origin::created), live(Origin::imported_fd), live(Origin::imported_pages)};
}

ze_result_t api::zeMemFree(ze_context_handle_t hContext, void* ptr) {
  auto context = find<Context>(hContext);
  require(ptr, "ptr");
  if (context->allocations.take(ptr) == nullptr) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "not the start of an allocation of this context");
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeMemGetAllocProperties(ze_context_handle_t hContext, const void* ptr,
                                         ze_memory_allocation_properties_t* pMemAllocProperties, ze_device_handle_t*) {
  // Like Intel's NPU driver, this one leaves `phDevice` as it is.
  auto& properties = require(pMemAllocProperties, "pMemAllocProperties");
  require_stype(properties.stype, ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES, "pMemAllocProperties");
  auto block = find_block(hContext, ptr);
  if (block == nullptr) {
    return unknown_address();
  }
  auto* wanted =
      find_next<ze_external_memory_export_fd_t>(properties.pNext, ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD);
  // Another kind of descriptor is passed over with SUCCESS, which Intel's NPU driver does too.
  if (wanted != nullptr && wanted->flags == ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF) {
    wanted->fd = export_descriptor(*block);
  }
  properties.type = block->type;
  properties.id = block->id;
  properties.pageSize = page_size;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeMemGetAddressRange(ze_context_handle_t hContext, const void* ptr, void** pBase, size_t* pSize) {
  auto block = find_block(hContext, ptr);
  if (block == nullptr) {
    return unknown_address();
  }
  if (pBase != nullptr) {
    *pBase = reinterpret_cast<void*>(block->device_address);  // as Intel's NPU driver: the device's view of it
  }
  if (pSize != nullptr) {
    *pSize = block->size;
  }
  return ZE_RESULT_SUCCESS;
}

}  // namespace softdriver
