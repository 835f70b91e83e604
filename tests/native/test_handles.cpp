// Handles that are stale, null, foreign or of another type: an answer, never a crash.
#include <sys/mman.h>
#include <unistd.h>

#include <vector>

#include "check.hpp"

using check::npu;

namespace {

template <class Handle>
Handle handle_of(const void* value) {
  return reinterpret_cast<Handle>(const_cast<void*>(value));
}

// Asks one question about each type of handle.
std::vector<ze_result_t> ask_all(const void* value) {
  ze_api_version_t version{};
  return {
      l0.ze_driver.pfnGetApiVersion(handle_of<ze_driver_handle_t>(value), &version),
      l0.ze_device.pfnGetStatus(handle_of<ze_device_handle_t>(value)),
      l0.ze_context.pfnGetStatus(handle_of<ze_context_handle_t>(value)),
      l0.ze_command_queue.pfnSynchronize(handle_of<ze_command_queue_handle_t>(value), 0),
      l0.ze_command_list.pfnClose(handle_of<ze_command_list_handle_t>(value)),
      l0.ze_fence.pfnQueryStatus(handle_of<ze_fence_handle_t>(value)),
      l0.ze_event_pool.pfnGetFlags(handle_of<ze_event_pool_handle_t>(value), nullptr),
      l0.ze_event.pfnQueryStatus(handle_of<ze_event_handle_t>(value)),
      l0.ze_context.pfnDestroy(handle_of<ze_context_handle_t>(value)),
      l0.ze_command_queue.pfnDestroy(handle_of<ze_command_queue_handle_t>(value)),
      l0.ze_command_list.pfnDestroy(handle_of<ze_command_list_handle_t>(value)),
      l0.ze_fence.pfnDestroy(handle_of<ze_fence_handle_t>(value)),
      l0.ze_event_pool.pfnDestroy(handle_of<ze_event_pool_handle_t>(value)),
      l0.ze_event.pfnDestroy(handle_of<ze_event_handle_t>(value)),
  };
}

void all_answer(const void* value, ze_result_t wanted) {
  for (ze_result_t result : ask_all(value)) {
    CHECK(result == wanted);
  }
}

// All handles of a small system, in the order of `ask_all`'s first eight questions.
struct Everything {
  ze_context_handle_t context = check::make_context();
  ze_command_queue_handle_t queue = check::make_queue(context);
  ze_command_list_handle_t list = check::make_list(context);
  ze_fence_handle_t fence = check::make_fence(queue);
  ze_event_pool_handle_t pool = check::make_pool(context, 1);
  ze_event_handle_t event = check::make_event(pool, 0);

  std::vector<const void*> handles() const {
    return {npu().driver, npu().device, context, queue, list, fence, pool, event};
  }
  void destroy() { check::destroy(event, pool, fence, list, queue, context); }
};

}  // namespace

TEST(null_handles) { all_answer(nullptr, ZE_RESULT_ERROR_INVALID_NULL_HANDLE); }

TEST(handles_of_another_type) {
  Everything all;
  auto wrong_destroys = [&](const void* value, auto own) {
    const std::vector<ze_result_t> results = ask_all(value);
    for (size_t i = 0; i < 8; ++i) {
      CHECK(i == own || results[i] == ZE_RESULT_ERROR_INVALID_ARGUMENT);
    }
  };
  // The driver and the device have no destroy function that could succeed.
  wrong_destroys(npu().driver, size_t{0});
  wrong_destroys(npu().device, size_t{1});
  CHECK_RESULT(l0.ze_fence.pfnQueryStatus(handle_of<ze_fence_handle_t>(all.queue)), ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(l0.ze_context.pfnDestroy(handle_of<ze_context_handle_t>(all.list)), ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(l0.ze_event.pfnDestroy(handle_of<ze_event_handle_t>(all.pool)), ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(check::execute(all.queue, handle_of<ze_command_list_handle_t>(all.fence)), ERROR_INVALID_ARGUMENT);
  all.destroy();
}

TEST(stale_handles) {
  Everything all;
  const std::vector<const void*> before = all.handles();
  all.destroy();
  for (size_t i = 2; i < before.size(); ++i) {
    all_answer(before[i], ZE_RESULT_ERROR_INVALID_ARGUMENT);
  }
  Everything again;
  for (const void* handle : again.handles()) {
    for (size_t i = 2; i < before.size(); ++i) {
      CHECK(handle != before[i]);
    }
  }
  again.destroy();
}

TEST(numbers_that_were_never_handles) {
  static const int constant = 0;
  int local = 0;
  const auto driver = reinterpret_cast<uintptr_t>(npu().driver);
  void* hole = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (uintptr_t value : {uintptr_t{1}, uintptr_t{0x1234}, UINTPTR_MAX, UINTPTR_MAX - 7, driver + 1, driver + 0x12300,
                          driver - 16, reinterpret_cast<uintptr_t>(&constant), reinterpret_cast<uintptr_t>(&local),
                          reinterpret_cast<uintptr_t>(hole)}) {
    all_answer(reinterpret_cast<const void*>(value), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  }
  munmap(hole, 4096);
}
