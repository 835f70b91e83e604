#include "memory.hpp"

#include <atomic>
#include <mutex>

#include "context.hpp"
#include "device.hpp"
#include "exports.hpp"
#include "fork.hpp"
#include "pool.hpp"
#include "record.hpp"
#include "softdriver_functions.hpp"

namespace softdriver {
namespace {

std::atomic<uint64_t> next_id{1};
std::atomic<uint64_t> live_blocks[origin_count];

std::atomic<uint64_t>& live(Origin origin) noexcept { return live_blocks[static_cast<size_t>(origin)]; }

std::shared_ptr<Allocation> find_block(ze_context_handle_t context, const void* address) {
  require(address, "ptr");
  return find<Context>(context)->allocations.find(address);
}

// Not thrown: programs ask about every address of theirs, and an exception costs forty times the lookup.
ze_result_t unknown_address(ze_result_t result) noexcept {
  set_last_error("the context has no memory at this address");
  return result;
}

uint64_t told_page_size(const Allocation& block) noexcept {
  constexpr uint64_t medium = 64 * 1024;
  constexpr uint64_t large = 2 * 1024 * 1024;
  const PageSizes sizes = behaviour().page_sizes;
  if (sizes == PageSizes::by_type_and_size && block.size >= large) {
    return large;
  }
  return sizes == PageSizes::small || block.type == ZE_MEMORY_TYPE_HOST ? page_size : medium;
}

}  // namespace

Allocation::Allocation(Origin origin) noexcept : origin(origin), id(next_id.fetch_add(1, std::memory_order_relaxed)) {
  live(origin).fetch_add(1, std::memory_order_relaxed);
}

Allocation::~Allocation() {
  end_exports(*this);
  if (mapped != 0) {
    unmap_pages(base, mapped);
  }
  if (pool != nullptr) {
    pool->give_back(base);
  }
  release_memory(accounted);
  live(origin).fetch_sub(1, std::memory_order_relaxed);
}

size_t Allocation::offset_in_export() const noexcept { return pool != nullptr ? pool->offset(base) : 0; }

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

std::shared_ptr<Allocation> Allocations::take(const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  std::lock_guard lock(process_lock(Lock::allocations));
  auto found = first_behind(wanted);
  if (found == blocks_.end() || found->first > wanted) {
    return nullptr;
  }
  const Allocation& there = *found->second;
  const bool whole = found->first == wanted || (behaviour().frees_from_within && there.pool == nullptr);
  return whole && there.origin != Origin::mapping ? take_at(found) : nullptr;
}

std::shared_ptr<Allocation> Allocations::take_mapping(const void* base) {
  std::lock_guard lock(process_lock(Lock::allocations));
  auto found = blocks_.find(reinterpret_cast<uintptr_t>(base));
  return found != blocks_.end() && found->second->origin == Origin::mapping ? take_at(found) : nullptr;
}

std::shared_ptr<Allocation> Allocations::take_at(Blocks::const_iterator found) {
  auto block = found->second;
  blocks_.erase(found);
  return block;
}

void Allocations::clear() {
  Blocks forgotten;  // dies without the lock: unmapping takes long
  std::lock_guard lock(process_lock(Lock::allocations));
  forgotten.swap(blocks_);
}

BlockFigures block_figures() noexcept {
  return {live(Origin::created), live(Origin::imported_fd), live(Origin::imported_pages), live(Origin::mapping)};
}

void free_memory(Context& context, void* address) {
  require(address, "ptr");
  const auto block = context.allocations.take(address);
  if (block == nullptr) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "not the start of an allocation of this context");
  }
  end_exports(*block);  // at once, though a command in flight may still hold the memory
}

ze_result_t api::zeMemFree(ze_context_handle_t hContext, void* ptr) {
  free_memory(*find<Context>(hContext), ptr);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeMemGetAllocProperties(ze_context_handle_t hContext, const void* ptr,
                                         ze_memory_allocation_properties_t* pMemAllocProperties,
                                         ze_device_handle_t* phDevice) {
  auto& properties = require(pMemAllocProperties, "pMemAllocProperties");
  require_stype(properties.stype, ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES, "pMemAllocProperties");
  const auto block = find_block(hContext, ptr);
  if (block == nullptr && behaviour().foreign_is_unknown) {
    properties.type = ZE_MEMORY_TYPE_UNKNOWN;
    return ZE_RESULT_SUCCESS;
  }
  if (block == nullptr) {
    return unknown_address(ZE_RESULT_ERROR_NOT_AVAILABLE);
  }
  answer_export_query(block, properties.pNext);
  properties.type = block->type;
  properties.id = block->id;
  properties.pageSize = told_page_size(*block);
  if (behaviour().tells_device && phDevice != nullptr) {
    const bool of_host = block->type == ZE_MEMORY_TYPE_HOST;
    *phDevice = of_host ? nullptr : static_cast<ze_device_handle_t>(the_device().handle());
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeMemGetAddressRange(ze_context_handle_t hContext, const void* ptr, void** pBase, size_t* pSize) {
  const auto block = find_block(hContext, ptr);
  if (block == nullptr) {
    return unknown_address(behaviour().foreign_range);
  }
  if (pBase != nullptr) {
    *pBase = behaviour().cpu_ranges ? block->base : reinterpret_cast<void*>(block->device_address);
  }
  if (pSize != nullptr) {
    *pSize = block->size;
  }
  return ZE_RESULT_SUCCESS;
}

}  // namespace softdriver
