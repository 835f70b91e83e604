// How blocks of memory are made: new ones, those behind a caller's descriptor, and a caller's own pages.
#include <atomic>

#include "context.hpp"
#include "device.hpp"
#include "memory.hpp"
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
// For an import, write-combined says that the device only reads: Intel's NPU driver takes it so.
constexpr uint32_t read_only_flags = ZE_HOST_MEM_ALLOC_FLAG_BIAS_WRITE_COMBINED | ZE_HOST_MEM_ALLOC_FLAG_MEM_READ_ONLY;

// The device's own address space: far from what a CPU address looks like, and never used twice.
std::atomic<uint64_t> next_device_address{0x180000000};

struct Request {
  ze_memory_type_t type;
  size_t size;
  size_t alignment;
  bool read_only = false;
  bool exportable = false;
  const ze_external_memory_import_fd_t* import = nullptr;
  const ze_external_memmap_sysmem_ext_desc_t* pages = nullptr;
};

void require_dma_buf(ze_external_memory_type_flags_t flags, const char* name) {
  if (flags != ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ENUMERATION, std::string(name) + " must be DMA_BUF and nothing else");
  }
}

// What the structures chained to a descriptor ask for. An import that cannot be done is an error:
// memory with other contents than the caller expects is worse.
void read_chain(const void* next, Request& request) {
  if (auto* wanted = find_next<ze_external_memory_export_desc_t>(next, ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC)) {
    require_dma_buf(wanted->flags, "export flags");
    request.exportable = true;
  }
  if (auto* import = find_next<ze_external_memory_import_fd_t>(next, ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD)) {
    require_dma_buf(import->flags, "import flags");
    request.import = import;
  }
  if (find_next<ze_external_memory_import_win32_handle_t>(next, ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_WIN32)) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ENUMERATION, "Win32 handles cannot be imported on this system");
  }
  if (auto* pages =
          find_next<ze_external_memmap_sysmem_ext_desc_t>(next, ZE_STRUCTURE_TYPE_EXTERNAL_MEMMAP_SYSMEM_EXT_DESC)) {
    request.pages = pages;
  }
  if (request.pages != nullptr && request.type != ZE_MEMORY_TYPE_HOST) {
    throw Failure(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "only a host allocation can import host pages");
  }
  if (request.pages != nullptr && (request.import != nullptr || request.exportable)) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "imported host pages cannot be a descriptor's memory as well");
  }
}

void check_size(const Request& request) {
  if (request.size == 0) {
    throw Failure(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, "size is 0");
  }
  const bool power_of_two = (request.alignment & (request.alignment - 1)) == 0;
  if (!power_of_two || request.alignment > max_allocation_size()) {
    throw Failure(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, "alignment is no power of two, or too large");
  }
  if (request.size > max_allocation_size()) {
    throw Failure(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, "size is larger than the device's memory");
  }
}

void map_block(Allocation& block, int descriptor, size_t bytes, const Request& request, bool writable) {
  block.base = map_pages(descriptor, bytes, request.alignment, writable);
  if (block.base == nullptr) {
    throw Failure(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, "memory cannot be mapped: " + system_error_text());
  }
  block.mapped = bytes;
}

std::shared_ptr<Allocation> create_block(const Request& request) {
  auto block = std::make_shared<Allocation>(Origin::created);
  const size_t bytes = round_to_pages(request.size);
  if (!account_memory(bytes)) {
    throw Failure(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, "the device's memory is used up");
  }
  block->accounted = bytes;
  Descriptor memory = create_memory(bytes);
  if (!memory.valid()) {
    throw Failure(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, "no memory object: " + system_error_text());
  }
  map_block(*block, memory.get(), bytes, request, true);
  block->size = request.size;
  if (request.exportable) {
    block->descriptor = std::move(memory);  // others close here: processes may have few descriptors and many blocks
  }
  return block;
}

// The descriptor stays the caller's: its memory is kept by the mapping.
std::shared_ptr<Allocation> import_block(const Request& request) {
  const int descriptor = request.import->fd;
  const size_t bytes = memory_size(descriptor);
  if (bytes == 0) {
    throw Failure(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
                  "descriptor " + std::to_string(descriptor) + " is no shareable memory");
  }
  if (bytes < request.size) {
    throw Failure(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, "descriptor " + std::to_string(descriptor) + " holds " +
                                                            std::to_string(bytes) + " bytes, fewer than the " +
                                                            std::to_string(request.size) + " asked for");
  }
  auto block = std::make_shared<Allocation>(Origin::imported_fd);
  try {
    map_block(*block, descriptor, bytes, request, true);
  } catch (const Failure&) {
    // A descriptor that cannot be written (opened so, or sealed) will do where the device only reads.
    if (!request.read_only) {
      throw;
    }
    map_block(*block, descriptor, bytes, request, false);
  }
  block->read_only = request.read_only;
  block->size = bytes;
  if (request.exportable) {
    block->descriptor = duplicate(descriptor);
    if (!block->descriptor.valid()) {
      throw Failure(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, "no new descriptor: " + system_error_text());
    }
  }
  return block;
}

std::shared_ptr<Allocation> import_pages(const Request& request) {
  void* address = request.pages->pSystemMemory;
  const uint64_t bytes = request.pages->size;
  require(address, "pSystemMemory");
  if (bytes == 0) {
    throw Failure(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, "the imported range is empty");
  }
  const auto first = reinterpret_cast<uintptr_t>(address);
  if (first % page_size != 0 || bytes % page_size != 0) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "address and size of imported pages must be multiples of 4096");
  }
  if (request.alignment != 0 && first % request.alignment != 0) {
    throw Failure(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, "the imported address is not aligned as asked");
  }
  if (bytes < request.size) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "the imported range is smaller than the size asked for");
  }
  if (first + bytes < first || !pin_pages(address, bytes, !request.read_only)) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "the imported range is not all memory that the device may use");
  }
  auto block = std::make_shared<Allocation>(Origin::imported_pages);
  block->base = static_cast<std::byte*>(address);
  block->size = bytes;
  block->read_only = request.read_only;
  return block;
}

void* allocate(Context& context, const Request& request) {
  check_size(request);
  auto block = request.pages != nullptr    ? import_pages(request)
               : request.import != nullptr ? import_block(request)
                                           : create_block(request);
  // Imported pages too are host memory: their own type came with API 1.17, and OpenVINO 2026.0 takes it for an error.
  block->type = request.type;
  block->device_address = next_device_address.fetch_add(round_to_pages(block->size), std::memory_order_relaxed);
  void* base = block->base;
  if (request.pages == nullptr) {
    context.allocations.add(std::move(block));
  } else if (!context.allocations.add_import(std::move(block))) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "a part of the range is memory of this context already");
  }
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

ze_result_t api::zeMemAllocHost(ze_context_handle_t hContext, const ze_host_mem_alloc_desc_t* host_desc, size_t size,
                                size_t alignment, void** pptr) {
  auto context = find<Context>(hContext);
  check_host_descriptor(host_desc);
  void*& out = require(pptr, "pptr");
  Request request{ZE_MEMORY_TYPE_HOST, size, alignment};
  read_chain(host_desc->pNext, request);
  request.read_only = (host_desc->flags & read_only_flags) != 0;
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
  read_chain(device_desc->pNext, request);
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
  read_chain(host_desc->pNext, request);
  read_chain(device_desc->pNext, request);
  out = allocate(*context, request);
  return ZE_RESULT_SUCCESS;
}

}  // namespace softdriver
