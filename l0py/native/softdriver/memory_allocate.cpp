// How blocks of memory are made: new ones, those behind a caller's descriptor, and a caller's own pages.
#include <atomic>

#include "context.hpp"
#include "device.hpp"
#include "external.hpp"
#include "memory.hpp"
#include "pool.hpp"
#include "record.hpp"
#include "softdriver_functions.hpp"

namespace softdriver {
namespace {

constexpr uint32_t known_host_flags = ZE_HOST_MEM_ALLOC_FLAG_BIAS_CACHED | ZE_HOST_MEM_ALLOC_FLAG_BIAS_UNCACHED |
                                      ZE_HOST_MEM_ALLOC_FLAG_BIAS_WRITE_COMBINED |
                                      ZE_HOST_MEM_ALLOC_FLAG_BIAS_INITIAL_PLACEMENT |
                                      ZE_HOST_MEM_ALLOC_FLAG_MEM_READ_ONLY;
constexpr uint32_t known_device_flags = ZE_DEVICE_MEM_ALLOC_FLAG_BIAS_CACHED | ZE_DEVICE_MEM_ALLOC_FLAG_BIAS_UNCACHED |
                                        ZE_DEVICE_MEM_ALLOC_FLAG_BIAS_INITIAL_PLACEMENT;

// The device's own address space: far from what a CPU address looks like, and never used twice.
std::atomic<uint64_t> next_device_address{0x180000000};

[[noreturn]] void refuse(ze_result_t result, const std::string& text) { throw Failure(result, text); }

void read_export(const ze_external_memory_export_desc_t& wanted, Request& request) {
  const Behaviour& own = behaviour();
  const bool good = own.exact_export_types ? wanted.flags == own.export_types : (wanted.flags & own.export_types) != 0;
  if (!good) {
    refuse(own.bad_handle_type, "export flags name no kind that the driver exports");
  }
  request.exportable = true;
}

void read_pages(const ze_external_memmap_sysmem_ext_desc_t& wanted, Request& request) {
  if (request.type == ZE_MEMORY_TYPE_HOST) {
    request.pages = &wanted;
  } else if (behaviour().pages_not_for_host != ZE_RESULT_SUCCESS) {
    refuse(behaviour().pages_not_for_host, "only a host allocation can import host pages");
  }
}

// Structures that ask for nothing which this driver could do otherwise.
bool is_hint(uint32_t stype) {
  return stype == ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC ||
         stype == ZE_STRUCTURE_TYPE_MEMORY_COMPRESSION_HINTS_EXT_DESC ||
         stype == ZE_STRUCTURE_TYPE_RAYTRACING_MEM_ALLOC_EXT_DESC ||
         stype == ZE_STRUCTURE_TYPE_IPC_MEM_HANDLE_TYPE_EXT_DESC;
}

void read_link(const ze_base_desc_t& link, Request& request) {
  const auto stype = static_cast<uint32_t>(link.stype);
  if (stype == ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC) {
    read_export(reinterpret_cast<const ze_external_memory_export_desc_t&>(link), request);
  } else if (stype == ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD ||
             stype == ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_WIN32) {
    read_import(link, request);
  } else if (stype == ZE_STRUCTURE_TYPE_EXTERNAL_MEMMAP_SYSMEM_EXT_DESC && behaviour().maps_host_pages) {
    read_pages(reinterpret_cast<const ze_external_memmap_sysmem_ext_desc_t&>(link), request);
  } else if (!is_hint(stype) && behaviour().unknown_link != ZE_RESULT_SUCCESS) {
    refuse(behaviour().unknown_link, "structure type " + std::to_string(stype) + " cannot describe memory");
  }
}

void check_size(const Request& request) {
  const Behaviour& own = behaviour();
  if (request.size == 0 && !own.empty_allocations) {
    refuse(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, "size is 0");
  }
  const bool power_of_two = (request.alignment & (request.alignment - 1)) == 0;
  if ((!power_of_two && own.checks_alignment) || request.alignment > max_allocation_size()) {
    refuse(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, "alignment is no power of two, or too large");
  }
  if (request.size > max_allocation_size()) {
    refuse(own.too_large, "size is larger than the device's memory");
  }
}

// What the driver makes of the alignment that was asked for.
size_t honoured_alignment(const Request& request) {
  const bool power_of_two = (request.alignment & (request.alignment - 1)) == 0;
  return power_of_two && request.alignment <= behaviour().most_alignment ? request.alignment : page_size;
}

void map_block(Allocation& block, SystemHandle handle, size_t bytes, const Request& request, bool writable) {
  block.base = map_pages(handle, bytes, honoured_alignment(request), writable);
  if (block.base == nullptr) {
    refuse(request.has_import ? behaviour().bad_handle : ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
           "memory cannot be mapped: " + system_error_text());
  }
  block.mapped = bytes;
}

bool belongs_in_a_pool(const Request& request) {
  return behaviour().unasked == Unasked::pooled && !request.exportable && request.type != ZE_MEMORY_TYPE_SHARED &&
         request.size <= Pool::largest && request.alignment <= Pool::size / 2;
}

std::shared_ptr<Allocation> create_block(const Request& request) {
  auto block = std::make_shared<Allocation>(Origin::created);
  const size_t size = request.size == 0 ? page_size : request.size;
  const size_t bytes = round_to_pages(size);
  if (!account_memory(bytes)) {
    refuse(request.type == ZE_MEMORY_TYPE_HOST ? behaviour().no_host_memory : ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
           "the device's memory is used up");
  }
  block->accounted = bytes;
  block->size = size;
  if (belongs_in_a_pool(request)) {
    block->pool = Pool::with_room(request.type, bytes, honoured_alignment(request), &block->base);
    return block;
  }
  Descriptor memory = create_memory(bytes);
  if (!memory.valid()) {
    refuse(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, "no memory object: " + system_error_text());
  }
  map_block(*block, memory.get(), bytes, request, true);
  if (request.exportable || behaviour().unasked != Unasked::refused) {
    block->descriptor = std::move(memory);  // others close here: processes may have few descriptors and many blocks
  }
  return block;
}

// The descriptor's memory is kept by the mapping. What the driver maps is all of it, whatever size was asked for.
std::shared_ptr<Allocation> import_block(const Request& request) {
  const size_t bytes = memory_size(request.import);
  if (bytes == 0) {
    refuse(behaviour().bad_handle, "the handle is of no shareable memory");
  }
  auto block = std::make_shared<Allocation>(Origin::imported_fd);
  try {
    map_block(*block, request.import, bytes, request, true);
  } catch (const Failure&) {
    // A descriptor that cannot be written (opened so, or sealed) will do where the device only reads.
    if (!request.read_only) {
      throw;
    }
    map_block(*block, request.import, bytes, request, false);
  }
  block->read_only = request.read_only;
  block->size = bytes;
  if (request.exportable || behaviour().unasked != Unasked::refused) {
    block->descriptor = duplicate(request.import);
    if (!block->descriptor.valid()) {
      refuse(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, "no new descriptor: " + system_error_text());
    }
  }
  return block;
}

[[noreturn]] void refuse_pages(ze_result_t result, const std::string& text) {
  const ze_result_t for_all = behaviour().bad_host_pages;
  refuse(for_all != ZE_RESULT_SUCCESS ? for_all : result, text);
}

std::shared_ptr<Allocation> import_pages(const Request& request) {
  void* address = request.pages->pSystemMemory;
  const uint64_t bytes = request.pages->size;
  if (address == nullptr) {
    refuse_pages(ZE_RESULT_ERROR_INVALID_NULL_POINTER, "pSystemMemory is null");
  }
  if (bytes == 0) {
    refuse_pages(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, "the imported range is empty");
  }
  const auto first = reinterpret_cast<uintptr_t>(address);
  if (first % page_size != 0 || bytes % page_size != 0) {
    refuse_pages(ZE_RESULT_ERROR_INVALID_ARGUMENT, "address and size of imported pages must be multiples of 4096");
  }
  if (request.alignment != 0 && first % request.alignment != 0) {
    refuse_pages(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, "the imported address is not aligned as asked");
  }
  if (bytes < request.size) {
    refuse_pages(ZE_RESULT_ERROR_INVALID_ARGUMENT, "the imported range is smaller than the size asked for");
  }
  if (first + bytes < first || !pin_pages(address, bytes, !request.read_only)) {
    refuse_pages(ZE_RESULT_ERROR_INVALID_ARGUMENT, "the imported range is not all memory that the device may use");
  }
  auto block = std::make_shared<Allocation>(Origin::imported_pages);
  block->base = static_cast<std::byte*>(address);
  block->size = bytes;
  block->read_only = request.read_only;
  // Host memory like any other: its own type came with API 1.17, and OpenVINO 2026.0 takes it for an error.
  block->type = request.type;
  return block;
}

void* allocate(Context& context, const Request& request) {
  check_size(request);
  void* base = add_block(context, request.pages != nullptr ? import_pages(request) : make_block(request));
  settle_import(request, behaviour().closes_imports);
  return base;
}

void check_device_descriptor(const ze_device_mem_alloc_desc_t* descriptor) {
  const auto& desc = require(descriptor, "device_desc");
  require_stype(desc.stype, ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, "device_desc");
  require_flags(desc.flags, known_device_flags, "device_desc->flags");
  if (desc.ordinal >= memory_count) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "the device has no memory of this ordinal");
  }
}

void check_host_descriptor(const ze_host_mem_alloc_desc_t* descriptor) {
  const auto& desc = require(descriptor, "host_desc");
  require_stype(desc.stype, ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, "host_desc");
  require_flags(desc.flags, known_host_flags, "host_desc->flags");
}

}  // namespace

void require_import_type(ze_external_memory_type_flags_t flags) {
  const bool one = flags != 0 && (flags & (flags - 1)) == 0;
  if (!one || (flags & ~behaviour().import_types) != 0) {
    refuse(behaviour().bad_handle_type, "import flags must be one kind that the driver imports");
  }
}

void read_chain(const void* next, Chain chain, Request& request) {
  constexpr int longest = 64;  // no honest chain is longer: this one bites its own tail
  if (chain == Chain::ignored) {
    return;
  }
  int links = 0;
  for (auto* link = static_cast<const ze_base_desc_t*>(next); link != nullptr && links < longest; ++links) {
    read_link(*link, request);
    link = behaviour().first_link_only ? nullptr : static_cast<const ze_base_desc_t*>(link->pNext);
  }
  if (chain == Chain::checked) {
    request.has_import = false;
  }
}

std::shared_ptr<Allocation> make_block(const Request& request) {
  auto block = request.has_import ? import_block(request) : create_block(request);
  block->type = request.type;
  return block;
}

void* add_block(Context& context, std::shared_ptr<Allocation> block) {
  block->device_address = next_device_address.fetch_add(round_to_pages(block->size), std::memory_order_relaxed);
  void* base = block->base;
  const bool callers_address = block->origin == Origin::imported_pages || block->origin == Origin::mapping;
  if (!callers_address) {
    context.allocations.add(std::move(block));
  } else if (!context.allocations.add_import(std::move(block))) {
    refuse_pages(ZE_RESULT_ERROR_INVALID_ARGUMENT, "a part of the range is memory of this context already");
  }
  return base;
}

void settle_import(const Request& request, bool closes) noexcept {
  if (request.has_import && closes) {
    close_imported(request.import);
  }
}

ze_result_t api::zeMemAllocHost(ze_context_handle_t hContext, const ze_host_mem_alloc_desc_t* host_desc, size_t size,
                                size_t alignment, void** pptr) {
  auto context = find<Context>(hContext);
  check_host_descriptor(host_desc);
  void*& out = require(pptr, "pptr");
  Request request{ZE_MEMORY_TYPE_HOST, size, alignment};
  read_chain(host_desc->pNext, behaviour().host_chain, request);
  request.read_only = (host_desc->flags & behaviour().read_only_flags) != 0;
  out = allocate(*context, request);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeMemAllocDevice(ze_context_handle_t hContext, const ze_device_mem_alloc_desc_t* device_desc,
                                  size_t size, size_t alignment, ze_device_handle_t hDevice, void** pptr) {
  auto context = find<Context>(hContext);
  find<Device>(hDevice);
  check_device_descriptor(device_desc);
  void*& out = require(pptr, "pptr");
  Request request{ZE_MEMORY_TYPE_DEVICE, size, alignment};
  read_chain(device_desc->pNext, behaviour().device_chain, request);
  out = allocate(*context, request);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeMemAllocShared(ze_context_handle_t hContext, const ze_device_mem_alloc_desc_t* device_desc,
                                  const ze_host_mem_alloc_desc_t* host_desc, size_t size, size_t alignment,
                                  ze_device_handle_t hDevice, void** pptr) {
  auto context = find<Context>(hContext);
  if (hDevice != nullptr) {  // shared memory may belong to no device
    find<Device>(hDevice);
  }
  check_device_descriptor(device_desc);
  check_host_descriptor(host_desc);
  void*& out = require(pptr, "pptr");
  Request request{ZE_MEMORY_TYPE_SHARED, size, alignment};
  read_chain(device_desc->pNext, behaviour().shared_chain, request);
  out = allocate(*context, request);
  return ZE_RESULT_SUCCESS;
}

}  // namespace softdriver
