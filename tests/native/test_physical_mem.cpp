// Physical memory and the virtual addresses that it is mapped to.
#include <cstring>

#include "gpu_memory.hpp"

using namespace check;

namespace {

constexpr size_t page = 65536;

ze_result_t create(ze_context_handle_t context, size_t size, ze_physical_mem_handle_t* made, const void* next = nullptr,
                   ze_physical_mem_flags_t flags = 0) {
  ze_physical_mem_desc_t desc{ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, next, flags, size};
  return l0.ze_physical_mem.pfnCreate(context, gpu().device, &desc, made);
}

ze_physical_mem_handle_t make_physical(ze_context_handle_t context, size_t size, ze_physical_mem_flags_t flags = 0) {
  ze_physical_mem_handle_t made = nullptr;
  OK(create(context, size, &made, nullptr, flags));
  return made;
}

char* reserve(ze_context_handle_t context, size_t size) {
  void* made = nullptr;
  OK(l0.ze_virtual_mem.pfnReserve(context, nullptr, size, &made));
  return static_cast<char*>(made);
}

ze_result_t map(ze_context_handle_t context, char* at, size_t size, ze_physical_mem_handle_t physical,
                size_t offset = 0, ze_memory_access_attribute_t access = ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE) {
  return l0.ze_virtual_mem.pfnMap(context, at, size, physical, offset, access);
}

int export_physical(ze_context_handle_t context, ze_physical_mem_handle_t physical) {
  ze_external_memory_export_fd_t wanted{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD, nullptr, dma_buf, -1};
  ze_physical_mem_properties_t properties{};
  properties.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_PROPERTIES;
  properties.pNext = &wanted;
  OK(l0.ze_physical_mem.pfnGetProperties(context, physical, &properties));
  CHECK(properties.size != 0);
  return wanted.fd;
}

void unmap(ze_context_handle_t context, char* at, size_t size) { OK(l0.ze_virtual_mem.pfnUnmap(context, at, size)); }
void release(ze_context_handle_t context, char* at, size_t size) { OK(l0.ze_virtual_mem.pfnFree(context, at, size)); }
void destroy_physical(ze_context_handle_t context, ze_physical_mem_handle_t physical) {
  OK(l0.ze_physical_mem.pfnDestroy(context, physical));
}

}  // namespace

TEST(page_sizes) {
  const auto context = make_context();
  size_t size = 0;
  OK(l0.ze_virtual_mem.pfnQueryPageSize(context, gpu().device, 100, &size));
  CHECK(size == page);
  OK(l0.ze_virtual_mem.pfnQueryPageSize(context, gpu().device, 2 << 20, &size));
  CHECK(size == 2 << 20);
  ze_physical_mem_handle_t physical = nullptr;
  for (size_t wrong : {size_t{0}, size_t{4096}, page + 4096, (size_t{2} << 20) + page, SIZE_MAX}) {
    CHECK_RESULT(create(context, wrong, &physical), ERROR_UNSUPPORTED_SIZE);
  }
  physical = make_physical(context, 4096, ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_HOST);
  destroy_physical(context, physical);
  void* address = nullptr;
  CHECK_RESULT(l0.ze_virtual_mem.pfnReserve(context, nullptr, 100, &address), ERROR_UNSUPPORTED_SIZE);
  destroy(context);
}

TEST(memory_moves_between_addresses) {
  const auto context = make_context();
  const auto physical = make_physical(context, 2 * page);
  char* at = reserve(context, 4 * page);
  OK(map(context, at + page, 2 * page, physical));
  std::strcpy(at + page, "it stays");
  auto properties = empty_properties();
  ze_device_handle_t device = nullptr;
  OK(l0.ze_mem.pfnGetAllocProperties(context, at + page + 5, &properties, &device));
  CHECK(properties.type == ZE_MEMORY_TYPE_DEVICE && device == gpu().device);
  CHECK(range_size(context, at + page) == 2 * page);
  CHECK_RESULT(l0.ze_mem.pfnFree(context, at + page), ERROR_INVALID_ARGUMENT);
  unmap(context, at + page, 2 * page);
  OK(l0.ze_mem.pfnGetAllocProperties(context, at + page, &properties, nullptr));
  CHECK(properties.type == ZE_MEMORY_TYPE_UNKNOWN);
  OK(map(context, at, page, physical));
  CHECK(std::strcmp(at, "it stays") == 0);
  unmap(context, at, page);
  OK(map(context, at, page, physical, page));  // its second page
  CHECK(at[0] == 0);
  release(context, at, 4 * page);  // what is mapped goes with the addresses
  destroy_physical(context, physical);
  destroy(context);
}

TEST(commands_on_mapped_memory) {
  const auto context = make_context();
  const auto physical = make_physical(context, page);
  char* at = reserve(context, page);
  OK(map(context, at, page, physical));
  const auto list = make_immediate(context, ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
  const char pattern = 9;
  OK(l0.ze_command_list.pfnAppendMemoryFill(list, at, &pattern, 1, page, nullptr, 0, nullptr));
  CHECK(at[0] == 9 && at[page - 1] == 9);
  auto set = [&](ze_memory_access_attribute_t access) {
    OK(l0.ze_virtual_mem.pfnSetAccessAttribute(context, at, page, access));
  };
  auto get = [&] {
    ze_memory_access_attribute_t access{};
    size_t size = 0;
    OK(l0.ze_virtual_mem.pfnGetAccessAttribute(context, at, page, &access, &size));
    CHECK(size == page);
    return access;
  };
  char byte = 0;
  set(ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY);
  CHECK(get() == ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY);
  CHECK_RESULT(l0.ze_command_list.pfnAppendMemoryFill(list, at, &pattern, 1, 1, nullptr, 0, nullptr),
               ERROR_INVALID_ARGUMENT);
  OK(l0.ze_command_list.pfnAppendMemoryCopy(list, &byte, at, 1, nullptr, 0, nullptr));
  CHECK(byte == 9);
  set(ZE_MEMORY_ACCESS_ATTRIBUTE_NONE);
  CHECK_RESULT(l0.ze_command_list.pfnAppendMemoryCopy(list, &byte, at, 1, nullptr, 0, nullptr), ERROR_INVALID_ARGUMENT);
  at[0] = 1;  // that was the device's access
  set(ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE);
  OK(l0.ze_command_list.pfnAppendMemoryCopy(list, &byte, at, 1, nullptr, 0, nullptr));
  CHECK(byte == 1);
  CHECK_RESULT(l0.ze_virtual_mem.pfnSetAccessAttribute(context, at, page, ZE_MEMORY_ACCESS_ATTRIBUTE_FORCE_UINT32),
               ERROR_INVALID_ENUMERATION);
  destroy(list);
  release(context, at, page);
  destroy_physical(context, physical);
  destroy(context);
}

TEST(mappings_that_cannot_be) {
  const auto context = make_context();
  const auto physical = make_physical(context, 2 * page);
  const auto host = make_physical(context, page, ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_HOST);
  char* at = reserve(context, 4 * page);
  CHECK_RESULT(map(context, at, 4096, physical), ERROR_UNSUPPORTED_SIZE);
  CHECK_RESULT(map(context, at + 4096, page, physical), ERROR_UNSUPPORTED_ALIGNMENT);
  CHECK_RESULT(map(context, at, page, physical, 4096), ERROR_UNSUPPORTED_ALIGNMENT);
  CHECK_RESULT(map(context, at, 2 * page, physical, page), ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(map(context, at, 3 * page, physical), ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(map(context, at + 4 * page, page, physical), ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(map(context, at, page, physical, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_FORCE_UINT32), ERROR_INVALID_ENUMERATION);
  OK(map(context, at + page, page, physical));
  CHECK_RESULT(map(context, at + 2 * page, page, physical), ERROR_INVALID_ARGUMENT);  // of a device: once
  CHECK_RESULT(map(context, at, 2 * page, host), ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(map(context, at + page, page, host), ERROR_INVALID_ARGUMENT);
  OK(map(context, at, page, host));
  OK(map(context, at + 2 * page, page, host));
  at[0] = 5;
  CHECK(at[2 * page] == 5);
  CHECK_RESULT(l0.ze_virtual_mem.pfnFree(context, at, page), ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(l0.ze_virtual_mem.pfnFree(context, at + page, 4 * page), ERROR_INVALID_ARGUMENT);
  unmap(context, at, 4 * page);
  unmap(context, at, 4 * page);  // nothing is left, and that is fine
  release(context, at, 4 * page);
  CHECK_RESULT(l0.ze_virtual_mem.pfnFree(context, at, 4 * page), ERROR_INVALID_ARGUMENT);
  destroy_physical(context, physical);
  destroy_physical(context, host);
  CHECK_RESULT(l0.ze_physical_mem.pfnDestroy(context, host), ERROR_INVALID_ARGUMENT);
  destroy(context);
}

TEST(physical_memory_in_and_out) {
  const auto context = make_context();
  const auto physical = make_physical(context, page);
  const int fd = export_physical(context, physical);
  CHECK(fd == export_physical(context, physical) && lseek(fd, 0, SEEK_END) == page);
  const auto import = import_desc(fcntl(fd, F_DUPFD_CLOEXEC, 3));
  ze_physical_mem_handle_t imported = nullptr;
  OK(create(context, page, &imported, &import));
  CHECK(is_open(import.fd));  // in every release: only allocations close theirs
  close(import.fd);
  char* first = reserve(context, page);
  char* second = reserve(context, page);
  OK(map(context, first, page, physical));
  OK(map(context, second, page, imported));
  first[100] = 3;
  CHECK(second[100] == 3);
  destroy_physical(context, physical);
  CHECK(!is_open(fd) && first[100] == 3);  // the mapping keeps it
  release(context, first, page);
  release(context, second, page);
  destroy_physical(context, imported);
  const int small = user_memory(4096);
  for (int wrong : {small, -1}) {
    const auto too_small = import_desc(wrong);
    CHECK_RESULT(create(context, page, &imported, &too_small), ERROR_OUT_OF_DEVICE_MEMORY);
  }
  const auto unknown = import_desc(small, 0x40);
  CHECK_RESULT(create(context, page, &imported, &unknown), ERROR_UNSUPPORTED_ENUMERATION);
  close(small);
  destroy(context);
}
