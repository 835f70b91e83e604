// Allocations: new ones, descriptors in and out, a caller's own pages, and all that is refused.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "check.hpp"

using check::host_desc;
using check::make_context;
using check::npu;

namespace {

constexpr ze_external_memory_type_flags_t dma_buf = ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF;

ze_device_mem_alloc_desc_t device_desc(const void* next = nullptr) {
  return {ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, next, 0, 0};
}

ze_result_t allocate(ze_context_handle_t context, const ze_host_mem_alloc_desc_t& desc, size_t size, char** memory,
                     size_t alignment = 0) {
  void* made = nullptr;
  const ze_result_t result = l0.ze_mem.pfnAllocHost(context, &desc, size, alignment, &made);
  *memory = static_cast<char*>(made);
  return result;
}

ze_memory_allocation_properties_t empty_properties(void* next = nullptr) {
  ze_memory_allocation_properties_t properties{};
  properties.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES;
  properties.pNext = next;
  return properties;
}

size_t range_size(ze_context_handle_t context, const void* address) {
  void* base = nullptr;
  size_t size = 0;
  OK(l0.ze_mem.pfnGetAddressRange(context, address, &base, &size));
  CHECK(base != nullptr && base != address);
  return size;
}

char* make_exportable(ze_context_handle_t context, size_t size) {
  const ze_external_memory_export_desc_t wish{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC, nullptr, dma_buf};
  char* memory = nullptr;
  OK(allocate(context, host_desc(&wish), size, &memory));
  return memory;
}

int export_memory(ze_context_handle_t context, const void* memory) {
  ze_external_memory_export_fd_t wanted{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD, nullptr, dma_buf, -1};
  auto properties = empty_properties(&wanted);
  OK(l0.ze_mem.pfnGetAllocProperties(context, memory, &properties, nullptr));
  return wanted.fd;
}

ze_external_memory_import_fd_t import_desc(int fd, ze_external_memory_type_flags_t flags = dma_buf) {
  return {ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD, nullptr, flags, fd};
}

ze_external_memmap_sysmem_ext_desc_t pages_desc(void* address, uint64_t size) {
  return {ZE_STRUCTURE_TYPE_EXTERNAL_MEMMAP_SYSMEM_EXT_DESC, nullptr, address, size};
}

char* map_anonymous(size_t size) {
  void* pages = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(pages != MAP_FAILED);
  return static_cast<char*>(pages);
}

int user_memory(off_t size) {
  const int fd = memfd_create("of the test", MFD_CLOEXEC);
  CHECK(fd >= 0 && ftruncate(fd, size) == 0);
  return fd;
}

}  // namespace

TEST(host_memory) {
  const auto context = make_context();
  char* memory = check::make_memory(context, 100);
  CHECK(memory[0] == 0 && memory[4095] == 0);
  std::memset(memory, 1, 4096);
  auto properties = empty_properties();
  auto get = l0.ze_mem.pfnGetAllocProperties;
  OK(get(context, memory, &properties, nullptr));
  CHECK(properties.type == ZE_MEMORY_TYPE_HOST && properties.id != 0 && properties.pageSize == 4096);
  const uint64_t id = properties.id;
  OK(get(context, memory + 99, &properties, nullptr));
  CHECK(properties.id == id && range_size(context, memory + 5) == 100);
  OK(l0.ze_mem.pfnGetAddressRange(context, memory, nullptr, nullptr));
  OK(l0.ze_mem.pfnFree(context, memory));
  CHECK_RESULT(l0.ze_mem.pfnFree(context, memory), ERROR_INVALID_ARGUMENT);
  check::destroy(context);
}

TEST(device_and_shared_memory) {
  const auto context = make_context();
  const auto device = device_desc();
  const auto host = host_desc();
  auto properties = empty_properties();
  void* memory = nullptr;
  OK(l0.ze_mem.pfnAllocDevice(context, &device, 5000, 0, npu().device, &memory));
  OK(l0.ze_mem.pfnGetAllocProperties(context, memory, &properties, nullptr));
  CHECK(properties.type == ZE_MEMORY_TYPE_DEVICE);
  OK(l0.ze_mem.pfnFree(context, memory));
  for (ze_device_handle_t of : {npu().device, ze_device_handle_t{nullptr}}) {
    OK(l0.ze_mem.pfnAllocShared(context, &device, &host, 5000, 0, of, &memory));
    OK(l0.ze_mem.pfnGetAllocProperties(context, memory, &properties, nullptr));
    CHECK(properties.type == ZE_MEMORY_TYPE_SHARED);
    OK(l0.ze_mem.pfnFree(context, memory));
  }
  CHECK_RESULT(l0.ze_mem.pfnAllocDevice(context, &device, 1, 0, nullptr, &memory), ERROR_INVALID_NULL_HANDLE);
  const ze_device_mem_alloc_desc_t second{ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, nullptr, 0, 1};
  CHECK_RESULT(l0.ze_mem.pfnAllocDevice(context, &second, 1, 0, npu().device, &memory), ERROR_INVALID_ARGUMENT);
  check::destroy(context);
}

TEST(addresses_that_the_context_does_not_know) {
  const auto context = make_context();
  const auto other = make_context();
  char* memory = check::make_memory(context, 100);
  auto properties = empty_properties();
  auto get = l0.ze_mem.pfnGetAllocProperties;
  char foreign = 0;
  for (char* address : {memory + 100, memory - 1, &foreign}) {
    CHECK_RESULT(get(context, address, &properties, nullptr), ERROR_NOT_AVAILABLE);
    CHECK_RESULT(l0.ze_mem.pfnGetAddressRange(context, address, nullptr, nullptr), ERROR_NOT_AVAILABLE);
    CHECK_RESULT(l0.ze_mem.pfnFree(context, address), ERROR_INVALID_ARGUMENT);
  }
  CHECK(properties.type == ZE_MEMORY_TYPE_UNKNOWN && properties.id == 0 && properties.pageSize == 0);
  CHECK_RESULT(get(other, memory, &properties, nullptr), ERROR_NOT_AVAILABLE);
  CHECK_RESULT(l0.ze_mem.pfnFree(other, memory), ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(l0.ze_mem.pfnFree(context, memory + 1), ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(l0.ze_mem.pfnFree(context, nullptr), ERROR_INVALID_NULL_POINTER);
  CHECK_RESULT(get(context, nullptr, &properties, nullptr), ERROR_INVALID_NULL_POINTER);
  CHECK_RESULT(get(context, memory, nullptr, nullptr), ERROR_INVALID_NULL_POINTER);
  properties.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC;
  CHECK_RESULT(get(context, memory, &properties, nullptr), ERROR_INVALID_ARGUMENT);
  OK(l0.ze_mem.pfnFree(context, memory));
  check::destroy(context, other);
}

TEST(sizes_and_alignments) {
  const auto context = make_context();
  char* memory = nullptr;
  CHECK_RESULT(allocate(context, host_desc(), 0, &memory), ERROR_UNSUPPORTED_SIZE);
  for (size_t alignment : {size_t{3}, size_t{4097}, size_t{1} << 63}) {
    CHECK_RESULT(allocate(context, host_desc(), 1, &memory, alignment), ERROR_UNSUPPORTED_ALIGNMENT);
  }
  for (size_t size : {SIZE_MAX, SIZE_MAX - 4095, SIZE_MAX / 2}) {
    CHECK_RESULT(allocate(context, host_desc(), size, &memory), ERROR_OUT_OF_DEVICE_MEMORY);
    CHECK_RESULT(allocate(context, host_desc(), size, &memory, 4096), ERROR_OUT_OF_DEVICE_MEMORY);
  }
  CHECK(memory == nullptr);
  for (size_t alignment : {size_t{1}, size_t{64}, size_t{4096}, size_t{8192}, size_t{2} << 20}) {
    OK(allocate(context, host_desc(), 5000, &memory, alignment));
    CHECK(reinterpret_cast<uintptr_t>(memory) % (alignment < 4096 ? alignment : 4096) == 0);  // more is not honoured
    std::memset(memory, 1, 5000);
    OK(l0.ze_mem.pfnFree(context, memory));
  }
  check::destroy(context);
}

TEST(descriptions_that_are_wrong) {
  const auto context = make_context();
  char* memory = nullptr;
  void* out = nullptr;
  auto desc = host_desc();
  CHECK_RESULT(l0.ze_mem.pfnAllocHost(context, nullptr, 1, 0, &out), ERROR_INVALID_NULL_POINTER);
  CHECK_RESULT(l0.ze_mem.pfnAllocHost(context, &desc, 1, 0, nullptr), ERROR_INVALID_NULL_POINTER);
  CHECK_RESULT(allocate(context, host_desc(nullptr, 0x20), 1, &memory), ERROR_INVALID_ENUMERATION);
  desc.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC;
  CHECK_RESULT(allocate(context, desc, 1, &memory), ERROR_INVALID_ARGUMENT);
  const ze_external_memory_export_desc_t opaque{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC, nullptr,
                                                ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD};
  CHECK_RESULT(allocate(context, host_desc(&opaque), 1, &memory), ERROR_INVALID_ENUMERATION);
  const ze_base_desc_t unknown{static_cast<ze_structure_type_t>(0x999), nullptr};
  OK(allocate(context, host_desc(&unknown), 1, &memory));
  OK(l0.ze_mem.pfnFree(context, memory));
  check::destroy(context);
}

TEST(every_export_is_a_new_descriptor) {
  const auto context = make_context();
  char* memory = make_exportable(context, 10000);
  const int first = export_memory(context, memory + 77);
  const int second = export_memory(context, memory);
  CHECK(first > 2 && second > 2 && first != second);
  CHECK((fcntl(first, F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(ftruncate(first, 0) != 0 && ftruncate(first, 1 << 20) != 0);
  close(first);
  close(second);
  OK(l0.ze_mem.pfnFree(context, memory));

  memory = check::make_memory(context, 1);
  ze_external_memory_export_fd_t wanted{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD, nullptr, dma_buf, -1};
  auto properties = empty_properties(&wanted);
  CHECK_RESULT(l0.ze_mem.pfnGetAllocProperties(context, memory, &properties, nullptr), ERROR_NOT_AVAILABLE);
  wanted.flags = ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD;
  OK(l0.ze_mem.pfnGetAllocProperties(context, memory, &properties, nullptr));
  CHECK(wanted.fd == -1);
  OK(l0.ze_mem.pfnFree(context, memory));
  check::destroy(context);
}

TEST(an_import_is_the_same_memory) {
  const auto context = make_context();
  const auto other = make_context();
  char* memory = make_exportable(context, 10000);
  std::memset(memory, 42, 10000);
  const int fd = export_memory(context, memory);
  const auto import = import_desc(fd);
  char* imported = nullptr;
  OK(allocate(other, host_desc(&import), 10000, &imported, 4096));
  CHECK(imported != memory && imported[9999] == 42 && range_size(other, imported + 1) == 12288);
  imported[0] = 7;
  CHECK(memory[0] == 7);
  CHECK(fcntl(fd, F_GETFD) >= 0);  // it stays the caller's
  OK(l0.ze_mem.pfnFree(context, memory));
  close(fd);
  CHECK(imported[1] == 42);
  OK(l0.ze_mem.pfnFree(other, imported));
  check::destroy(context, other);
}

TEST(imports_of_every_kind) {
  const auto context = make_context();
  const int fd = user_memory(192);
  lseek(fd, 5, SEEK_SET);
  const auto import = import_desc(fd);
  const auto device = device_desc(&import);
  const auto host = host_desc();
  char* memory = nullptr;
  char* again = nullptr;
  OK(allocate(context, host_desc(&import), 192, &memory, 4096));
  OK(allocate(context, host_desc(&import), 100, &again));
  CHECK(again != memory && range_size(context, again) == 192);
  CHECK(lseek(fd, 0, SEEK_CUR) == 5);
  void* more = nullptr;
  OK(l0.ze_mem.pfnAllocDevice(context, &device, 192, 0, npu().device, &more));
  OK(l0.ze_mem.pfnFree(context, more));
  OK(l0.ze_mem.pfnAllocShared(context, &device, &host, 192, 0, npu().device, &more));
  OK(l0.ze_mem.pfnFree(context, more));
  OK(l0.ze_mem.pfnFree(context, again));
  OK(l0.ze_mem.pfnFree(context, memory));
  OK(allocate(context, host_desc(&import), 193, &memory));
  CHECK(range_size(context, memory) == 192);  // all that there is, whatever was asked for
  OK(l0.ze_mem.pfnFree(context, memory));
  for (ze_external_memory_type_flags_t flags : {0U, 1U, 3U}) {
    const auto wrong = import_desc(fd, flags);
    CHECK_RESULT(allocate(context, host_desc(&wrong), 192, &memory), ERROR_INVALID_ENUMERATION);
  }
  // The first link of a chain is all that is read: this asks for new memory.
  const ze_external_memory_export_desc_t wish{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC, &import, dma_buf};
  OK(allocate(context, host_desc(&wish), 100, &memory));
  CHECK(range_size(context, memory) == 100);
  const int exported = export_memory(context, memory);
  CHECK(exported >= 0 && lseek(exported, 0, SEEK_END) == 4096);
  close(exported);
  OK(l0.ze_mem.pfnFree(context, memory));
  close(fd);
  check::destroy(context);
}

TEST(descriptor_zero_is_one_too) {
  const auto context = make_context();
  const int saved = fcntl(0, F_DUPFD_CLOEXEC, 3);
  const int fd = user_memory(4096);
  CHECK(dup2(fd, 0) == 0);
  const auto import = import_desc(0);
  char* memory = nullptr;
  OK(allocate(context, host_desc(&import), 4096, &memory));
  OK(l0.ze_mem.pfnFree(context, memory));
  close(0);
  // The driver's own descriptors keep away from the standard streams.
  memory = make_exportable(context, 4096);
  const int exported = export_memory(context, memory);
  CHECK(exported > 2);
  close(exported);
  OK(l0.ze_mem.pfnFree(context, memory));
  if (saved >= 0) {
    dup2(saved, 0);
    close(saved);
  }
  close(fd);
  check::destroy(context);
}

TEST(descriptors_of_no_memory) {
  const auto context = make_context();
  int ends[2];
  CHECK(pipe(ends) == 0);
  const int others[] = {ends[0],
                        ends[1],
                        socket(AF_UNIX, SOCK_STREAM, 0),
                        open("/", O_RDONLY | O_DIRECTORY),
                        open("/dev/null", O_RDWR),
                        open("/proc/self/exe", O_RDONLY),
                        user_memory(0)};
  char* memory = nullptr;
  for (int fd : others) {
    CHECK(fd >= 0);
    const auto import = import_desc(fd);
    CHECK_RESULT(allocate(context, host_desc(&import), 1, &memory), ERROR_OUT_OF_DEVICE_MEMORY);
    close(fd);
  }
  for (int fd : {others[0], -1, 99999, INT32_MIN}) {
    const auto import = import_desc(fd);
    CHECK_RESULT(allocate(context, host_desc(&import), 1, &memory), ERROR_OUT_OF_DEVICE_MEMORY);
  }
  check::destroy(context);
}

TEST(a_descriptor_that_may_only_be_read) {
  const auto context = make_context();
  const int fd = user_memory(192);
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const int read_only = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const auto import = import_desc(read_only);
  char* memory = nullptr;
  CHECK_RESULT(allocate(context, host_desc(&import), 192, &memory), ERROR_OUT_OF_DEVICE_MEMORY);
  OK(allocate(context, host_desc(&import, ZE_HOST_MEM_ALLOC_FLAG_BIAS_WRITE_COMBINED), 192, &memory));
  const auto list = check::make_list(context);
  CHECK_RESULT(l0.ze_command_list.pfnAppendMemoryCopy(list, memory, memory, 1, nullptr, 0, nullptr),
               ERROR_INVALID_ARGUMENT);
  check::destroy(list);
  OK(l0.ze_mem.pfnFree(context, memory));
  close(read_only);
  close(fd);
  check::destroy(context);
}

TEST(own_pages) {
  const auto context = make_context();
  const auto other = make_context();
  char* pages = map_anonymous(65536);
  auto desc = pages_desc(pages, 32768);
  const auto host = host_desc(&desc);
  char* memory = nullptr;
  OK(allocate(context, host, 32768, &memory, 4096));
  CHECK(memory == pages);
  auto properties = empty_properties();
  OK(l0.ze_mem.pfnGetAllocProperties(context, memory + 32767, &properties, nullptr));
  CHECK(properties.type == ZE_MEMORY_TYPE_HOST);
  CHECK_RESULT(l0.ze_mem.pfnGetAllocProperties(context, memory + 32768, &properties, nullptr), ERROR_NOT_AVAILABLE);
  // The same range again, and one that overlaps it: only another context may have them.
  CHECK_RESULT(allocate(context, host, 32768, &memory), ERROR_INVALID_ARGUMENT);
  desc.pSystemMemory = pages + 28672;
  CHECK_RESULT(allocate(context, host, 32768, &memory), ERROR_INVALID_ARGUMENT);
  OK(allocate(other, host, 32768, &memory));
  OK(l0.ze_mem.pfnFree(other, memory));
  OK(l0.ze_mem.pfnFree(context, pages));
  pages[0] = 1;  // they stay the caller's
  munmap(pages, 65536);
  check::destroy(context, other);
}

TEST(pages_that_cannot_be_imported) {
  const auto context = make_context();
  char* pages = map_anonymous(65536);
  char* memory = nullptr;
  auto import = [&](void* address, uint64_t size, size_t wanted, ze_host_mem_alloc_flags_t flags = 0) {
    const auto desc = pages_desc(address, size);
    return allocate(context, host_desc(&desc, flags), wanted, &memory);
  };
  CHECK_RESULT(import(pages + 1, 4096, 4096), ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(import(pages, 100, 100), ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(import(pages, 0, 100), ERROR_UNSUPPORTED_SIZE);
  CHECK_RESULT(import(pages, 4096, 4097), ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(import(nullptr, 4096, 4096), ERROR_INVALID_NULL_POINTER);
  CHECK_RESULT(import(reinterpret_cast<void*>(0x1000), 65536, 65536), ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(import(reinterpret_cast<void*>(UINTPTR_MAX - 4095), 65536, 65536), ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(import(pages, UINT64_MAX - 4095, 4096), ERROR_INVALID_ARGUMENT);

  mprotect(pages + 8192, 4096, PROT_READ);
  CHECK_RESULT(import(pages, 65536, 65536), ERROR_INVALID_ARGUMENT);
  OK(import(pages, 65536, 65536, ZE_HOST_MEM_ALLOC_FLAG_MEM_READ_ONLY));
  OK(l0.ze_mem.pfnFree(context, memory));
  mprotect(pages + 8192, 4096, PROT_NONE);
  CHECK_RESULT(import(pages, 65536, 65536, ZE_HOST_MEM_ALLOC_FLAG_MEM_READ_ONLY), ERROR_INVALID_ARGUMENT);
  munmap(pages + 8192, 4096);
  CHECK_RESULT(import(pages, 65536, 65536), ERROR_INVALID_ARGUMENT);

  const ze_external_memory_export_desc_t wish{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC, nullptr, dma_buf};
  auto desc = pages_desc(pages, 4096);
  desc.pNext = &wish;
  OK(allocate(context, host_desc(&desc), 4096, &memory));  // the second link is not read
  CHECK(memory == pages);
  OK(l0.ze_mem.pfnFree(context, memory));
  desc.pNext = nullptr;
  const auto device = device_desc(&desc);
  void* out = nullptr;
  CHECK_RESULT(l0.ze_mem.pfnAllocDevice(context, &device, 4096, 0, npu().device, &out), ERROR_UNSUPPORTED_FEATURE);
  munmap(pages, 65536);
  check::destroy(context);
}

// The caller unmapped imported pages without freeing the import; a new block may then lie where they were.
TEST(a_stale_import_gives_way) {
  const auto context = make_context();
  const int fd = user_memory(8192);
  void* pages = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const auto desc = pages_desc(pages, 8192);
  char* memory = nullptr;
  OK(allocate(context, host_desc(&desc), 8192, &memory));
  munmap(pages, 8192);
  std::vector<char*> blocks;
  while (blocks.size() < 64 && (blocks.empty() || blocks.back() != pages)) {
    blocks.push_back(check::make_memory(context, 8192));
  }
  for (char* block : blocks) {
    auto properties = empty_properties();
    OK(l0.ze_mem.pfnGetAllocProperties(context, block, &properties, nullptr));
    CHECK(properties.type == ZE_MEMORY_TYPE_HOST);
    OK(l0.ze_mem.pfnFree(context, block));
  }
  close(fd);
  check::destroy(context);
}

TEST(a_limit_of_memory) {
  const auto context = make_context();
  OK(l0sd.memory_limit(20000));
  char* memory = check::make_memory(context, 16384);
  char* more = nullptr;
  CHECK_RESULT(allocate(context, host_desc(), 4096, &more), ERROR_OUT_OF_DEVICE_MEMORY);
  OK(l0.ze_mem.pfnFree(context, memory));
  OK(allocate(context, host_desc(), 4096, &more));
  OK(l0sd.memory_limit(0));
  memory = check::make_memory(context, 1 << 20);
  check::destroy(context);
}
