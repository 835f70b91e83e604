// Memory handles for other processes.
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cstring>
#include <thread>
#include <vector>

#include "gpu_memory.hpp"

using namespace check;

namespace {

ze_ipc_mem_handle_t handle_of(ze_context_handle_t context, const void* memory) {
  ze_ipc_mem_handle_t handle{};
  OK(l0.ze_mem.pfnGetIpcHandle(context, memory, &handle));
  return handle;
}

ze_result_t open_handle(ze_context_handle_t context, const ze_ipc_mem_handle_t& handle, char** memory) {
  void* opened = nullptr;
  const ze_result_t result = l0.ze_mem.pfnOpenIpcHandle(context, gpu().device, handle, 0, &opened);
  *memory = static_cast<char*>(opened);
  return result;
}

uint64_t descriptor_of(ze_context_handle_t context, const ze_ipc_mem_handle_t& handle) {
  uint64_t number = 0;
  OK(l0.ze_mem_exp.pfnGetFileDescriptorFromIpcHandleExp(context, handle, &number));
  return number;
}

// What the child of the test below works with: a fork leaves it its own copy.
ze_ipc_mem_handle_t from_parent;
bool looked = false;

// Some systems let no process look into another.
bool may_look_into(pid_t process, int fd) {
  const auto other = static_cast<int>(syscall(434, process, 0));
  const auto copy = static_cast<int>(syscall(438, other, fd, 0));
  if (copy >= 0) {
    close(copy);
  }
  if (other >= 0) {
    close(other);
  }
  return copy >= 0;
}

}  // namespace

TEST(a_handle_opens_the_same_memory) {
  for (const char* release : releases) {
    const Release imitated(release);
    const auto context = make_context();
    const auto other = make_context();
    for (ze_memory_type_t kind : {ZE_MEMORY_TYPE_HOST, ZE_MEMORY_TYPE_DEVICE}) {
      for (bool exportable : {false, true}) {
        char* memory = make_kind(context, kind, 10000, exportable);
        const auto handle = handle_of(context, memory);
        char* first = nullptr;
        char* second = nullptr;
        OK(open_handle(other, handle, &first));
        OK(open_handle(other, handle, &second));
        CHECK(first != second && first != memory);
        memory[9999] = 42;
        CHECK(first[9999] == 42 && second[9999] == 42);
        first[0] = 7;
        CHECK(memory[0] == 7);
        auto properties = empty_properties();
        OK(l0.ze_mem.pfnGetAllocProperties(other, first, &properties, nullptr));
        CHECK(properties.type == kind);
        OK(l0.ze_mem.pfnCloseIpcHandle(other, first));
        CHECK_RESULT(l0.ze_mem.pfnCloseIpcHandle(other, first), ERROR_INVALID_ARGUMENT);
        free_memory(context, memory);
        CHECK(second[9999] == 42);  // it lives as long as the import
        OK(l0.ze_mem.pfnCloseIpcHandle(other, second));
        CHECK_RESULT(open_handle(other, handle, &first), ERROR_INVALID_ARGUMENT);  // its descriptor is closed
      }
    }
    destroy(context, other);
  }
}

TEST(what_has_no_handle) {
  const auto context = make_context();
  ze_ipc_mem_handle_t handle{};
  char foreign = 0;
  CHECK_RESULT(l0.ze_mem.pfnGetIpcHandle(context, &foreign, &handle), ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(l0.ze_mem.pfnGetIpcHandle(context, nullptr, &handle), ERROR_INVALID_NULL_POINTER);
  char* shared = make_kind(context, ZE_MEMORY_TYPE_SHARED, 4096);
  CHECK_RESULT(l0.ze_mem.pfnGetIpcHandle(context, shared, &handle), ERROR_UNSUPPORTED_FEATURE);
  char* pooled = make_kind(context, ZE_MEMORY_TYPE_DEVICE, 4096);
  CHECK_RESULT(l0.ze_mem.pfnGetIpcHandle(context, pooled, nullptr), ERROR_INVALID_NULL_POINTER);
  CHECK_RESULT(l0.ze_mem.pfnGetIpcHandle(context, pooled + 1, &handle), ERROR_INVALID_ARGUMENT);
  {
    const Release imitated("22.43");
    char* old = make_kind(context, ZE_MEMORY_TYPE_SHARED, 4096);
    OK(l0.ze_mem.pfnGetIpcHandle(context, old + 1, &handle));
    free_memory(context, old);
  }
  free_memory(context, shared);
  free_memory(context, pooled);
  destroy(context);
}

TEST(handles_that_are_none) {
  const auto context = make_context();
  char* memory = nullptr;
  ze_ipc_mem_handle_t handle{};
  CHECK_RESULT(open_handle(context, handle, &memory), ERROR_INVALID_ARGUMENT);
  std::memset(handle.data, 0xff, sizeof handle.data);
  CHECK_RESULT(open_handle(context, handle, &memory), ERROR_INVALID_ARGUMENT);
  OK(l0.ze_mem.pfnPutIpcHandle(context, handle));
  uint64_t number = 0;
  CHECK_RESULT(l0.ze_mem_exp.pfnGetFileDescriptorFromIpcHandleExp(context, handle, &number), ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(l0.ze_mem_exp.pfnGetIpcHandleFromFileDescriptorExp(context, 0, &handle), ERROR_INVALID_ARGUMENT);
  char* own = make_kind(context, ZE_MEMORY_TYPE_DEVICE, 4096);
  void* opened = nullptr;
  CHECK_RESULT(l0.ze_mem.pfnOpenIpcHandle(context, gpu().device, handle_of(context, own), 8, &opened),
               ERROR_INVALID_ENUMERATION);
  free_memory(context, own);
  destroy(context);
}

TEST(a_handle_is_put_back_as_often_as_it_was_got) {
  const auto context = make_context();
  char* memory = make_kind(context, ZE_MEMORY_TYPE_DEVICE, 4096, true);
  const auto handle = handle_of(context, memory);
  const auto number = static_cast<int>(descriptor_of(context, handle));
  int exported = -1;
  OK(export_memory(context, memory, &exported));
  CHECK(exported == number);  // one descriptor for all
  ze_ipc_mem_handle_t again{};
  OK(l0.ze_mem_exp.pfnGetIpcHandleFromFileDescriptorExp(context, static_cast<uint64_t>(number), &again));
  CHECK(std::memcmp(again.data, handle.data, sizeof again.data) == 0);
  OK(l0.ze_mem.pfnPutIpcHandle(context, handle));
  CHECK(is_open(number));
  OK(l0.ze_mem.pfnPutIpcHandle(context, handle));
  CHECK(!is_open(number));
  OK(l0.ze_mem.pfnPutIpcHandle(context, handle));  // once too often does no harm
  free_memory(context, memory);
  destroy(context);
}

TEST(handles_with_properties) {
  const auto context = make_context();
  char* memory = make_kind(context, ZE_MEMORY_TYPE_DEVICE, 4096);
  ze_ipc_mem_handle_t handle{};
  ze_ipc_mem_handle_type_ext_desc_t type{ZE_STRUCTURE_TYPE_IPC_MEM_HANDLE_TYPE_EXT_DESC, nullptr,
                                         ZE_IPC_MEM_HANDLE_TYPE_FLAG_DEFAULT};
  OK(l0.ze_mem.pfnGetIpcHandleWithProperties(context, memory, nullptr, &handle));
  OK(l0.ze_mem.pfnGetIpcHandleWithProperties(context, memory, &type, &handle));
  type.typeFlags = ZE_IPC_MEM_HANDLE_TYPE_FLAG_FABRIC_ACCESSIBLE;
  CHECK_RESULT(l0.ze_mem.pfnGetIpcHandleWithProperties(context, memory, &type, &handle), ERROR_UNSUPPORTED_FEATURE);
  type.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC;
  CHECK_RESULT(l0.ze_mem.pfnGetIpcHandleWithProperties(context, memory, &type, &handle), ERROR_INVALID_ARGUMENT);
  free_memory(context, memory);
  destroy(context);
}

TEST(another_process_opens_it) {
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  const auto context = make_context();
  char* memory = make_kind(context, ZE_MEMORY_TYPE_DEVICE, 4096);  // of a pool: the offset counts
  char* second = make_kind(context, ZE_MEMORY_TYPE_DEVICE, 4096);
  std::strcpy(second, "from the parent");
  from_parent = handle_of(context, second);
  in_child([] {
    const auto own = make_context();
    char* opened = nullptr;
    const ze_result_t result = open_handle(own, from_parent, &opened);
    uint64_t number = 0;
    std::memcpy(&number, from_parent.data, sizeof number);
    looked = may_look_into(getppid(), static_cast<int>(number));
    CHECK(result == (looked ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT));
    if (looked) {
      CHECK(std::strcmp(opened, "from the parent") == 0);
      std::strcpy(opened, "from the child");
      OK(l0.ze_mem.pfnCloseIpcHandle(own, opened));
    }
    destroy(own);
  });
  if (may_look_into(getpid(), 0)) {
    CHECK(std::strcmp(second, "from the child") == 0);
  }
  free_memory(context, memory);
  free_memory(context, second);
  destroy(context);
}

TEST(threads_that_get_and_put) {
  const auto context = make_context();
  char* memory = make_kind(context, ZE_MEMORY_TYPE_DEVICE, 4096, true);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        const auto handle = handle_of(context, memory);
        char* opened = nullptr;
        OK(open_handle(context, handle, &opened));  // while it is held, its descriptor is open
        OK(l0.ze_mem.pfnCloseIpcHandle(context, opened));
        OK(l0.ze_mem.pfnPutIpcHandle(context, handle));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  free_memory(context, memory);
  destroy(context);
}
