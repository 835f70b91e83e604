// What the tests of the GPU's driver share: memory of every kind, descriptors in and out, releases.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.hpp"

namespace check {

inline constexpr ze_external_memory_type_flags_t dma_buf = ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF;
inline constexpr ze_external_memory_type_flags_t opaque_fd = ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD;
inline constexpr ze_memory_type_t kinds[] = {ZE_MEMORY_TYPE_HOST, ZE_MEMORY_TYPE_DEVICE, ZE_MEMORY_TYPE_SHARED};
inline constexpr const char* releases[] = {"22.43", "26.13", "26.14"};

// The driver behaves as a release until the end of the scope.
class Release {
 public:
  explicit Release(const char* name) { OK(l0sd.imitate(name)); }
  ~Release() { OK(l0sd.imitate("26.14")); }
};

inline ze_result_t allocate(ze_context_handle_t context, ze_memory_type_t kind, const void* next, size_t size,
                            char** memory, size_t alignment = 0) {
  const ze_device_mem_alloc_desc_t device{ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, next, 0, 0};
  const ze_host_mem_alloc_desc_t host = host_desc(kind == ZE_MEMORY_TYPE_HOST ? next : nullptr);
  void* made = nullptr;
  ze_result_t result;
  if (kind == ZE_MEMORY_TYPE_HOST) {
    result = l0.ze_mem.pfnAllocHost(context, &host, size, alignment, &made);
  } else if (kind == ZE_MEMORY_TYPE_DEVICE) {
    result = l0.ze_mem.pfnAllocDevice(context, &device, size, alignment, gpu().device, &made);
  } else {
    result = l0.ze_mem.pfnAllocShared(context, &device, &host, size, alignment, gpu().device, &made);
  }
  *memory = static_cast<char*>(made);
  return result;
}

inline char* make_kind(ze_context_handle_t context, ze_memory_type_t kind, size_t size, bool exportable = false) {
  const ze_external_memory_export_desc_t wish{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC, nullptr, dma_buf};
  char* memory = nullptr;
  OK(allocate(context, kind, exportable ? &wish : nullptr, size, &memory));
  return memory;
}

inline ze_external_memory_import_fd_t import_desc(int fd, ze_external_memory_type_flags_t flags = dma_buf) {
  return {ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD, nullptr, flags, fd};
}

inline ze_memory_allocation_properties_t empty_properties(void* next = nullptr) {
  ze_memory_allocation_properties_t properties{};
  properties.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES;
  properties.pNext = next;
  return properties;
}

inline ze_result_t export_memory(ze_context_handle_t context, const void* memory, int* fd,
                                 ze_external_memory_type_flags_t flags = dma_buf) {
  ze_external_memory_export_fd_t wanted{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD, nullptr, flags, -1};
  auto properties = empty_properties(&wanted);
  const ze_result_t result = l0.ze_mem.pfnGetAllocProperties(context, memory, &properties, nullptr);
  *fd = wanted.fd;
  return result;
}

inline size_t range_size(ze_context_handle_t context, const void* address) {
  size_t size = 0;
  OK(l0.ze_mem.pfnGetAddressRange(context, address, nullptr, &size));
  return size;
}

inline int user_memory(off_t size) {
  const int fd = memfd_create("of the test", MFD_CLOEXEC);
  CHECK(fd >= 0 && ftruncate(fd, size) == 0);
  return fd;
}

inline bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

inline void free_memory(ze_context_handle_t context, void* memory) { OK(l0.ze_mem.pfnFree(context, memory)); }

}  // namespace check
