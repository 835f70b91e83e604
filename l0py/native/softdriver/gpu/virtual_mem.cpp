// Virtual memory: reserved addresses, and the physical memory that is mapped to them.
#include <iterator>
#include <map>
#include <mutex>
#include <vector>

#include "device.hpp"
#include "fork.hpp"
#include "physical_mem.hpp"
#include "placed_pages.hpp"
#include "softdriver_functions.hpp"

namespace softdriver {
namespace {

constexpr size_t reservation_alignment = size_t{2} << 20;

struct Mapping {
  size_t size;
  size_t offset;
  std::shared_ptr<PhysicalMem> physical;
};

// A range of addresses. Its access is that of all its mappings, as Intel's driver keeps it.
struct Reservation {
  std::byte* whole = nullptr;  // what the system reserved, of which the aligned part is given out
  size_t whole_size = 0;
  size_t size = 0;
  ze_memory_access_attribute_t access = ZE_MEMORY_ACCESS_ATTRIBUTE_NONE;
  std::map<uintptr_t, Mapping> mappings;
};
using Reservations = std::map<uintptr_t, Reservation>;

// Under Lock::reservations. Deliberately never destroyed: other libraries call the driver while the process exits.
Reservations& all_reservations() {
  static auto& instance = *new Reservations;
  return instance;
}

[[noreturn]] void refuse(ze_result_t result, const char* text) { throw Failure(result, text); }

void require_access(ze_memory_access_attribute_t access) {
  if (access != ZE_MEMORY_ACCESS_ATTRIBUTE_NONE && access != ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE &&
      access != ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY) {
    refuse(ZE_RESULT_ERROR_INVALID_ENUMERATION, "access is unknown");
  }
}

// The reservation that has all of the range.
Reservation& find_reservation(uintptr_t first, size_t size) {
  Reservations& all = all_reservations();
  auto found = all.upper_bound(first);
  if (found != all.begin()) {
    found = std::prev(found);
    const size_t offset = first - found->first;
    if (offset <= found->second.size && size <= found->second.size - offset) {
      return found->second;
    }
  }
  refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "the range was not reserved");
}

bool is_mapped(const PhysicalMem& physical) {
  for (const auto& [base, reservation] : all_reservations()) {
    for (const auto& [at, mapping] : reservation.mappings) {
      if (mapping.physical.get() == &physical) {
        return true;
      }
    }
  }
  return false;
}

void check_pages(uintptr_t first, size_t size) {
  if (size == 0 || in_device_pages(size) != size) {
    refuse(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, "virtual memory is mapped in whole pages: see the page size query");
  }
  if (first % device_page_size(size) != 0) {
    refuse(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, "the address is not aligned to the page size");
  }
}

// Makes the context know a mapping. Access is the device's: the host's pages stay what they are.
void introduce(Context& context, uintptr_t first, const Mapping& mapping, ze_memory_access_attribute_t access) {
  auto block = std::make_shared<Allocation>(Origin::mapping);
  block->base = reinterpret_cast<std::byte*>(first);
  block->size = mapping.size;
  block->type = mapping.physical->block->type;
  block->read_only = access != ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE;
  block->no_access = access == ZE_MEMORY_ACCESS_ATTRIBUTE_NONE;
  block->owner = mapping.physical;
  add_block(context, std::move(block));
}

// Puts a mapping's memory to its addresses, after what is the easier to undo.
void place(Context& context, uintptr_t first, const Mapping& mapping, ze_memory_access_attribute_t access) {
  auto* at = reinterpret_cast<std::byte*>(first);
  introduce(context, first, mapping, access);
  if (!place_pages(at, mapping.physical->block->descriptor.get(), mapping.offset, mapping.size)) {
    context.allocations.take_mapping(at);
    refuse(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, "memory cannot be mapped there");
  }
}

void remove(Context& context, uintptr_t first, const Mapping& mapping) {
  auto* at = reinterpret_cast<std::byte*>(first);
  context.allocations.take_mapping(at);
  if (!clear_pages(at, mapping.size)) {
    refuse(ZE_RESULT_ERROR_UNKNOWN, "the range cannot be unmapped");
  }
}

}  // namespace

ze_result_t api::zeVirtualMemQueryPageSize(ze_context_handle_t context, ze_device_handle_t device, size_t size,
                                           size_t* page) {
  find<Context>(context);
  find<Device>(device);
  require(page, "pagesize") = device_page_size(size);
  return ZE_RESULT_SUCCESS;
}

// Where it shall begin is a wish, and not granted.
ze_result_t api::zeVirtualMemReserve(ze_context_handle_t context, const void*, size_t size, void** address) {
  find<Context>(context);
  void*& out = require(address, "pptr");
  if (size == 0 || round_to_pages(size) != size || size > max_allocation_size()) {
    refuse(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, "addresses are reserved in whole pages");
  }
  const size_t whole_size = size + reservation_alignment;
  const uintptr_t whole = reserve_addresses(whole_size);
  if (whole == 0) {
    refuse(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, "no addresses are left");
  }
  const uintptr_t first = (whole + reservation_alignment - 1) / reservation_alignment * reservation_alignment;
  std::lock_guard lock(process_lock(Lock::reservations));
  Reservation& made = all_reservations()[first];
  made.whole = reinterpret_cast<std::byte*>(whole);
  made.whole_size = whole_size;
  made.size = size;
  out = reinterpret_cast<void*>(first);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeVirtualMemFree(ze_context_handle_t context, const void* address, size_t size) {
  const auto owner = find<Context>(context);
  require(address, "ptr");
  std::lock_guard lock(process_lock(Lock::reservations));
  const auto found = all_reservations().find(reinterpret_cast<uintptr_t>(address));
  if (found == all_reservations().end() || found->second.size != size) {
    refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "no reservation begins there that has this size");
  }
  Reservation& gone = found->second;
  for (const auto& [first, mapping] : gone.mappings) {
    owner->allocations.take_mapping(reinterpret_cast<void*>(first));
  }
  release_addresses(gone.whole, gone.whole_size);
  all_reservations().erase(found);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeVirtualMemMap(ze_context_handle_t context, const void* address, size_t size,
                                 ze_physical_mem_handle_t physical, size_t offset,
                                 ze_memory_access_attribute_t access) {
  const auto owner = find<Context>(context);
  const auto memory = find<PhysicalMem>(physical);
  const auto first = reinterpret_cast<uintptr_t>(&require(static_cast<const std::byte*>(address), "ptr"));
  check_pages(first, size);
  require_access(access);
  if (offset % device_page_size(offset) != 0) {
    refuse(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, "the offset is not a multiple of the page size");
  }
  if (offset > memory->size || size > memory->size - offset) {
    refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "the physical memory does not reach that far");
  }
  std::lock_guard lock(process_lock(Lock::reservations));
  if (!memory->of_host() && is_mapped(*memory)) {
    refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "a device's physical memory has one mapping at most");
  }
  Reservation& reservation = find_reservation(first, size);
  const auto next = reservation.mappings.lower_bound(first);
  const bool before =
      next != reservation.mappings.begin() && std::prev(next)->first + std::prev(next)->second.size > first;
  if (before || (next != reservation.mappings.end() && next->first < first + size)) {
    refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "a part of the range is mapped already");
  }
  const Mapping mapping{size, offset, memory};
  place(*owner, first, mapping, access);
  reservation.mappings.emplace(first, mapping);
  reservation.access = access;
  return ZE_RESULT_SUCCESS;
}

// Removes the mappings that lie in the range; there may be none.
ze_result_t api::zeVirtualMemUnmap(ze_context_handle_t context, const void* address, size_t size) {
  const auto owner = find<Context>(context);
  const auto first = reinterpret_cast<uintptr_t>(&require(static_cast<const std::byte*>(address), "ptr"));
  check_pages(first, size);
  std::lock_guard lock(process_lock(Lock::reservations));
  for (auto& [base, reservation] : all_reservations()) {
    auto& mappings = reservation.mappings;
    auto at = mappings.lower_bound(first);
    while (at != mappings.end() && at->first + at->second.size <= first + size) {
      remove(*owner, at->first, at->second);
      at = mappings.erase(at);
    }
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeVirtualMemSetAccessAttribute(ze_context_handle_t context, const void* address, size_t size,
                                                ze_memory_access_attribute_t access) {
  const auto owner = find<Context>(context);
  const auto first = reinterpret_cast<uintptr_t>(&require(static_cast<const std::byte*>(address), "ptr"));
  require_access(access);
  std::lock_guard lock(process_lock(Lock::reservations));
  Reservation& reservation = find_reservation(first, size);
  const auto found = reservation.mappings.find(first);
  if (found != reservation.mappings.end() && reservation.access != access) {
    owner->allocations.take_mapping(address);
    introduce(*owner, first, found->second, access);
  }
  reservation.access = access;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeVirtualMemGetAccessAttribute(ze_context_handle_t context, const void* address, size_t size,
                                                ze_memory_access_attribute_t* access, size_t* whole) {
  find<Context>(context);
  const auto first = reinterpret_cast<uintptr_t>(&require(static_cast<const std::byte*>(address), "ptr"));
  require(access, "access");
  require(whole, "outSize");
  std::lock_guard lock(process_lock(Lock::reservations));
  const Reservation& reservation = find_reservation(first, size);
  *access = reservation.access;
  *whole = reservation.size;
  return ZE_RESULT_SUCCESS;
}

}  // namespace softdriver
