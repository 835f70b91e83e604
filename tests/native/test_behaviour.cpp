// What Intel's GPU driver does with memory, release by release: each test is a row of the table of their differences.
#include <cstring>

#include "gpu_memory.hpp"

using namespace check;

namespace {

bool is_old(const char* release) { return std::strcmp(release, "22.43") == 0; }

// Runs a test's body for each release with a context.
template <class Body>
void in_each_release(Body body) {
  for (const char* release : releases) {
    const Release imitated(release);
    const auto context = make_context();
    body(context, release);
    destroy(context);
  }
}

// Whether memory that was allocated with an import of `fd` is that of the descriptor.
bool is_imported(const char* memory, int fd) {
  char byte = 0;
  CHECK(pwrite(fd, "x", 1, 7) == 1);
  std::memcpy(&byte, memory + 7, 1);
  return byte == 'x';
}

void expect_import(ze_context_handle_t context, ze_memory_type_t kind, bool honoured, bool closed) {
  const int fd = user_memory(8192);
  const int given = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  const auto import = import_desc(given);
  char* memory = nullptr;
  OK(allocate(context, kind, &import, 8192, &memory));
  CHECK(is_imported(memory, fd) == honoured);
  CHECK(is_open(given) == !closed);
  free_memory(context, memory);
  if (!closed) {
    close(given);
  }
  close(fd);
}

}  // namespace

TEST(versions) {
  for (const char* release : releases) {
    const Release imitated(release);
    ze_api_version_t version{};
    OK(l0.ze_driver.pfnGetApiVersion(gpu().driver, &version));
    CHECK(version == (is_old(release) ? ZE_API_VERSION_1_3 : ZE_API_VERSION_1_15));
    ze_driver_properties_t properties{};
    properties.stype = ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES;
    OK(l0.ze_driver.pfnGetProperties(gpu().driver, &properties));
    CHECK(properties.driverVersion > 0x01030000);
    // What came later is not there.
    ze_init_driver_type_desc_t desc{ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC, nullptr, UINT32_MAX};
    uint32_t count = 0;
    const ze_result_t result = l0.ze_global.pfnInitDrivers(&count, nullptr, &desc);
    CHECK(result == (is_old(release) ? ZE_RESULT_ERROR_UNSUPPORTED_FEATURE : ZE_RESULT_SUCCESS));
  }
  CHECK_RESULT(l0sd.imitate("1.32.1"), ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(l0sd.imitate(nullptr), ERROR_INVALID_ARGUMENT);
}

TEST(kinds_of_handles) {
  in_each_release([](ze_context_handle_t, const char* release) {
    ze_device_external_memory_properties_t properties{};
    properties.stype = ZE_STRUCTURE_TYPE_DEVICE_EXTERNAL_MEMORY_PROPERTIES;
    OK(l0.ze_device.pfnGetExternalMemoryProperties(gpu().device, &properties));
    const auto wanted = is_old(release) ? dma_buf : dma_buf | opaque_fd;
    CHECK(properties.memoryAllocationImportTypes == wanted && properties.memoryAllocationExportTypes == wanted);
  });
}

TEST(imports_and_who_closes_the_descriptor) {
  in_each_release([](ze_context_handle_t context, const char* release) {
    const bool closes = std::strcmp(release, "26.14") == 0;
    expect_import(context, ZE_MEMORY_TYPE_DEVICE, true, closes);
    expect_import(context, ZE_MEMORY_TYPE_HOST, !is_old(release), closes);
    expect_import(context, ZE_MEMORY_TYPE_SHARED, false, false);  // SUCCESS, and new memory
  });
}

TEST(import_flags) {
  in_each_release([](ze_context_handle_t context, const char* release) {
    const int fd = user_memory(4096);
    for (ze_external_memory_type_flags_t flags : {0U, dma_buf | opaque_fd, 4U, 0x40U}) {
      const auto import = import_desc(fd, flags);
      char* memory = nullptr;
      CHECK_RESULT(allocate(context, ZE_MEMORY_TYPE_DEVICE, &import, 4096, &memory), ERROR_UNSUPPORTED_ENUMERATION);
      for (ze_memory_type_t kind : {ZE_MEMORY_TYPE_HOST, ZE_MEMORY_TYPE_SHARED}) {
        const ze_result_t result = allocate(context, kind, &import, 4096, &memory);
        CHECK(result == (is_old(release) ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION));
        if (result == ZE_RESULT_SUCCESS) {
          free_memory(context, memory);
        }
      }
    }
    CHECK(is_open(fd));
    close(fd);
  });
}

TEST(opaque_descriptors) {
  in_each_release([](ze_context_handle_t context, const char* release) {
    const int fd = user_memory(4096);
    const auto import = import_desc(fcntl(fd, F_DUPFD_CLOEXEC, 3), opaque_fd);
    char* memory = nullptr;
    const ze_result_t result = allocate(context, ZE_MEMORY_TYPE_DEVICE, &import, 4096, &memory);
    CHECK(result == (is_old(release) ? ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION : ZE_RESULT_SUCCESS));
    if (result == ZE_RESULT_SUCCESS) {
      CHECK(is_imported(memory, fd));
      free_memory(context, memory);
    }
    if (is_open(import.fd)) {
      close(import.fd);
    }
    close(fd);
  });
}

TEST(descriptors_of_no_memory_stay_the_callers) {
  in_each_release([](ze_context_handle_t context, const char*) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    char* memory = nullptr;
    for (int fd : {ends[0], nothing, -1, 99999}) {
      const auto import = import_desc(fd);
      CHECK_RESULT(allocate(context, ZE_MEMORY_TYPE_DEVICE, &import, 4096, &memory), ERROR_INVALID_ARGUMENT);
    }
    CHECK(is_open(ends[0]) && is_open(nothing));
    close(ends[0]);
    close(ends[1]);
    close(nothing);
  });
}

TEST(the_size_of_an_import_is_the_descriptors) {
  in_each_release([](ze_context_handle_t context, const char* release) {
    const int fd = user_memory(8192);
    for (size_t size : {size_t{1}, size_t{8192}, size_t{1} << 20}) {
      const auto import = import_desc(fcntl(fd, F_DUPFD_CLOEXEC, 3));
      char* memory = nullptr;
      OK(allocate(context, ZE_MEMORY_TYPE_DEVICE, &import, size, &memory));
      CHECK(range_size(context, memory) == 8192);
      free_memory(context, memory);
      if (std::strcmp(release, "26.14") != 0) {
        close(import.fd);
      }
    }
    close(fd);
  });
}

TEST(export_flags) {
  in_each_release([](ze_context_handle_t context, const char* release) {
    auto answer = [&](ze_memory_type_t kind, ze_external_memory_type_flags_t flags) {
      const ze_external_memory_export_desc_t wish{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC, nullptr, flags};
      char* memory = nullptr;
      const ze_result_t result = allocate(context, kind, &wish, 4096, &memory);
      if (result == ZE_RESULT_SUCCESS) {
        free_memory(context, memory);
      }
      return result;
    };
    CHECK_RESULT(answer(ZE_MEMORY_TYPE_DEVICE, dma_buf | 0x40U), SUCCESS);
    CHECK_RESULT(answer(ZE_MEMORY_TYPE_DEVICE, ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_WIN32), SUCCESS);
    CHECK_RESULT(answer(ZE_MEMORY_TYPE_DEVICE, 0x40U), ERROR_UNSUPPORTED_ENUMERATION);
    const ze_result_t opaque = answer(ZE_MEMORY_TYPE_DEVICE, opaque_fd);
    CHECK(opaque == (is_old(release) ? ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION : ZE_RESULT_SUCCESS));
    const ze_result_t host = answer(ZE_MEMORY_TYPE_HOST, 0x40U);
    CHECK(host == (is_old(release) ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION));
  });
}

TEST(exports) {
  in_each_release([](ze_context_handle_t context, const char* release) {
    int first = -1;
    int second = -1;
    char* memory = make_kind(context, ZE_MEMORY_TYPE_DEVICE, 10000, true);
    OK(export_memory(context, memory, &first));
    OK(export_memory(context, memory + 77, &second));
    CHECK(first > 2 && (fcntl(first, F_GETFD) & FD_CLOEXEC) != 0 && is_imported(memory, first));
    // New releases keep one, which is theirs until the memory is freed; the old one makes new ones, for the caller.
    CHECK((first == second) == !is_old(release));
    free_memory(context, memory);
    CHECK(is_open(first) == is_old(release));
    if (is_old(release)) {
      close(first);
      close(second);
    }
    memory = make_kind(context, ZE_MEMORY_TYPE_HOST, 10000, true);
    const ze_result_t host = export_memory(context, memory, &first);
    CHECK(host == (is_old(release) ? ZE_RESULT_ERROR_UNSUPPORTED_FEATURE : ZE_RESULT_SUCCESS));
    free_memory(context, memory);
    memory = make_kind(context, ZE_MEMORY_TYPE_SHARED, 10000, true);
    CHECK_RESULT(export_memory(context, memory, &first), ERROR_UNSUPPORTED_FEATURE);
    free_memory(context, memory);
  });
}

TEST(exports_of_another_kind) {
  in_each_release([](ze_context_handle_t context, const char* release) {
    char* memory = make_kind(context, ZE_MEMORY_TYPE_DEVICE, 4096, true);
    int fd = -1;
    const ze_result_t result = export_memory(context, memory, &fd, opaque_fd);
    CHECK(result == (is_old(release) ? ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION : ZE_RESULT_SUCCESS));
    CHECK((fd >= 0) == (result == ZE_RESULT_SUCCESS));
    ze_base_properties_t unknown{static_cast<ze_structure_type_t>(0x999), nullptr};
    auto properties = empty_properties(&unknown);
    CHECK_RESULT(l0.ze_mem.pfnGetAllocProperties(context, memory, &properties, nullptr), ERROR_INVALID_ENUMERATION);
    free_memory(context, memory);
  });
}

// New releases take small memory out of a pool, whose descriptor an export then gives: another size, and the memory
// somewhere in it.
TEST(exports_that_were_not_asked_for) {
  in_each_release([](ze_context_handle_t context, const char* release) {
    char* before = make_kind(context, ZE_MEMORY_TYPE_DEVICE, 4096);
    char* memory = make_kind(context, ZE_MEMORY_TYPE_DEVICE, 4096);
    int fd = -1;
    OK(export_memory(context, memory, &fd));
    CHECK(lseek(fd, 0, SEEK_END) == (is_old(release) ? 4096 : 2 << 20));
    CHECK(is_imported(memory, fd) == is_old(release));
    CHECK(range_size(context, memory) == 4096);
    if (is_old(release)) {
      close(fd);
    }
    free_memory(context, before);
    free_memory(context, memory);
  });
}

TEST(structures_that_describe_no_memory) {
  in_each_release([](ze_context_handle_t context, const char* release) {
    const ze_base_desc_t unknown{static_cast<ze_structure_type_t>(0x999), nullptr};
    for (ze_memory_type_t kind : kinds) {
      char* memory = nullptr;
      const ze_result_t result = allocate(context, kind, &unknown, 4096, &memory);
      const bool passed_over = is_old(release) && kind != ZE_MEMORY_TYPE_DEVICE;
      CHECK(result == (passed_over ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION));
      if (result == ZE_RESULT_SUCCESS) {
        free_memory(context, memory);
      }
    }
  });
}

TEST(pages_of_the_host) {
  in_each_release([](ze_context_handle_t context, const char* release) {
    void* pages = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ze_external_memmap_sysmem_ext_desc_t desc{ZE_STRUCTURE_TYPE_EXTERNAL_MEMMAP_SYSMEM_EXT_DESC, nullptr, pages, 8192};
    char* memory = nullptr;
    OK(allocate(context, ZE_MEMORY_TYPE_HOST, &desc, 8192, &memory));
    CHECK((memory == pages) == !is_old(release));  // the old one does not know it: SUCCESS and new memory
    free_memory(context, memory);
    if (!is_old(release)) {
      desc.size = 0;
      CHECK_RESULT(allocate(context, ZE_MEMORY_TYPE_HOST, &desc, 8192, &memory), ERROR_OUT_OF_HOST_MEMORY);
      desc = {desc.stype, nullptr, static_cast<char*>(pages) + 1, 4096};
      CHECK_RESULT(allocate(context, ZE_MEMORY_TYPE_HOST, &desc, 4096, &memory), ERROR_OUT_OF_HOST_MEMORY);
    }
    munmap(pages, 8192);
  });
}

TEST(sizes_and_alignments) {
  in_each_release([](ze_context_handle_t context, const char* release) {
    for (ze_memory_type_t kind : kinds) {
      char* memory = nullptr;
      const ze_result_t empty = allocate(context, kind, nullptr, 0, &memory);
      CHECK(empty == (is_old(release) ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_UNSUPPORTED_SIZE));
      if (empty == ZE_RESULT_SUCCESS) {
        free_memory(context, memory);
      }
      CHECK_RESULT(allocate(context, kind, nullptr, SIZE_MAX / 2, &memory), ERROR_UNSUPPORTED_SIZE);
      OK(allocate(context, kind, nullptr, 4096, &memory, 3));
      free_memory(context, memory);
      for (size_t alignment : {size_t{64}, size_t{65536}, size_t{2} << 20}) {
        OK(allocate(context, kind, nullptr, 4096, &memory, alignment));
        const bool honoured = reinterpret_cast<uintptr_t>(memory) % alignment == 0;
        CHECK(honoured || (is_old(release) && alignment > 65536));
        std::memset(memory, 1, 4096);
        free_memory(context, memory);
      }
    }
  });
}

TEST(addresses_that_the_driver_does_not_know) {
  in_each_release([](ze_context_handle_t context, const char* release) {
    char foreign = 0;
    auto properties = empty_properties();
    properties.type = ZE_MEMORY_TYPE_SHARED;
    OK(l0.ze_mem.pfnGetAllocProperties(context, &foreign, &properties, nullptr));
    CHECK(properties.type == ZE_MEMORY_TYPE_UNKNOWN);
    const ze_result_t range = l0.ze_mem.pfnGetAddressRange(context, &foreign, nullptr, nullptr);
    CHECK(range == (is_old(release) ? ZE_RESULT_ERROR_UNKNOWN : ZE_RESULT_ERROR_ADDRESS_NOT_FOUND));
    CHECK_RESULT(l0.ze_mem.pfnFree(context, &foreign), ERROR_INVALID_ARGUMENT);
    CHECK_RESULT(l0.ze_context.pfnMakeMemoryResident(context, gpu().device, &foreign, 1), ERROR_INVALID_ARGUMENT);
  });
}

TEST(properties) {
  in_each_release([](ze_context_handle_t context, const char* release) {
    for (ze_memory_type_t kind : kinds) {
      for (size_t size : {size_t{4096}, size_t{2} << 20}) {
        char* memory = make_kind(context, kind, size);
        auto properties = empty_properties();
        ze_device_handle_t device = reinterpret_cast<ze_device_handle_t>(1);
        OK(l0.ze_mem.pfnGetAllocProperties(context, memory + 5, &properties, &device));
        const bool host = kind == ZE_MEMORY_TYPE_HOST;
        CHECK(properties.type == kind && properties.id != 0);
        CHECK(device == (host ? nullptr : gpu().device));
        const size_t small = host ? 4096 : 65536;
        CHECK(properties.pageSize == (is_old(release) || size < 2 << 20 ? small : size_t{2} << 20));
        void* base = nullptr;
        size_t range = 0;
        OK(l0.ze_mem.pfnGetAddressRange(context, memory + 5, &base, &range));
        CHECK(base == memory && range == size);
        free_memory(context, memory);
      }
    }
  });
}

TEST(freeing) {
  in_each_release([](ze_context_handle_t context, const char* release) {
    char* memory = make_kind(context, ZE_MEMORY_TYPE_DEVICE, 8192, true);
    free_memory(context, memory + 4096);  // an address inside will do
    CHECK_RESULT(l0.ze_mem.pfnFree(context, memory), ERROR_INVALID_ARGUMENT);
    memory = make_kind(context, ZE_MEMORY_TYPE_DEVICE, 8192);  // but not in a pool
    const ze_result_t within = l0.ze_mem.pfnFree(context, memory + 4096);
    CHECK(within == (is_old(release) ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT));
    if (within != ZE_RESULT_SUCCESS) {
      free_memory(context, memory);
    }
    const ze_memory_free_ext_desc_t blocking{ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC, nullptr,
                                             ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE};
    const ze_memory_free_ext_desc_t deferred{ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC, nullptr,
                                             ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE};
    memory = make_kind(context, ZE_MEMORY_TYPE_DEVICE, 8192);
    const ze_result_t later = l0.ze_mem.pfnFreeExt(context, &deferred, memory);
    CHECK(later == (is_old(release) ? ZE_RESULT_ERROR_UNSUPPORTED_FEATURE : ZE_RESULT_SUCCESS));
    if (later != ZE_RESULT_SUCCESS) {
      OK(l0.ze_mem.pfnFreeExt(context, &blocking, memory));
    }
    CHECK_RESULT(l0.ze_mem.pfnFreeExt(context, &blocking, memory), ERROR_INVALID_ARGUMENT);
  });
}

TEST(peers_barriers_and_status) {
  in_each_release([](ze_context_handle_t context, const char* release) {
    ze_bool_t can = 0;
    OK(l0.ze_device.pfnCanAccessPeer(gpu().device, gpu().device, &can));
    CHECK(can == 1);
    const ze_result_t unsupported = ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    CHECK(l0.ze_device.pfnGetStatus(gpu().device) == (is_old(release) ? unsupported : ZE_RESULT_SUCCESS));
    CHECK(l0.ze_context.pfnSystemBarrier(context, gpu().device) == (is_old(release) ? unsupported : ZE_RESULT_SUCCESS));
    CHECK(l0.ze_context.pfnSystemBarrier(context, nullptr) ==
          (is_old(release) ? unsupported : ZE_RESULT_ERROR_INVALID_ARGUMENT));
    OK(l0.ze_context.pfnGetStatus(context));
    char* memory = make_kind(context, ZE_MEMORY_TYPE_DEVICE, 4096);
    OK(l0.ze_context.pfnMakeMemoryResident(context, gpu().device, memory, 4096));
    OK(l0.ze_context.pfnEvictMemory(context, gpu().device, memory, 4096));
    free_memory(context, memory);
  });
}

TEST(pools_are_used_again_and_given_up) {
  const auto context = make_context();
  for (int round = 0; round < 3; ++round) {
    char* blocks[700];  // more than one pool holds
    for (char*& block : blocks) {
      block = make_kind(context, ZE_MEMORY_TYPE_HOST, 4096);
      CHECK(block[0] == 0 && block[4095] == 0);
      std::memset(block, 7, 4096);
    }
    for (size_t i = 0; i < 700; i += 2) {
      free_memory(context, blocks[i]);
    }
    for (size_t i = 0; i < 700; i += 2) {
      blocks[i] = make_kind(context, ZE_MEMORY_TYPE_HOST, 4096);
      CHECK(blocks[i][0] == 0);
    }
    for (char* block : blocks) {
      free_memory(context, block);
    }
  }
  char* large = make_kind(context, ZE_MEMORY_TYPE_HOST, (1 << 20) + 1);  // no pool for that
  int fd = -1;
  OK(export_memory(context, large, &fd));
  CHECK(lseek(fd, 0, SEEK_END) == (1 << 20) + 4096);
  free_memory(context, large);
  destroy(context);
}
