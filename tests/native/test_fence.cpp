// Fences: of nothing, of work in flight, of work that is done.
#include <thread>

#include "check.hpp"

using check::ever;

namespace {

auto& fences = l0.ze_fence;

// A queue that is held up until its gate is signalled.
struct Held {
  ze_context_handle_t context = check::make_context();
  ze_command_queue_handle_t queue = check::make_queue(context);
  ze_command_list_handle_t list = check::make_list(context);
  ze_event_pool_handle_t pool = check::make_pool(context, 1);
  ze_event_handle_t gate = check::make_event(pool, 0);
  ze_fence_handle_t fence = check::make_fence(queue);

  Held() {
    OK(l0.ze_command_list.pfnAppendWaitOnEvents(list, 1, &gate));
    OK(l0.ze_command_list.pfnClose(list));
  }
  ~Held() { check::destroy(gate, pool, list, queue, context); }
};

}  // namespace

TEST(of_nothing) {
  Held held;
  CHECK_RESULT(fences.pfnQueryStatus(held.fence), NOT_READY);
  CHECK_RESULT(fences.pfnHostSynchronize(held.fence, ever), NOT_READY);
  const auto signalled = check::make_fence(held.queue, ZE_FENCE_FLAG_SIGNALED);
  OK(fences.pfnHostSynchronize(signalled, 0));
  OK(fences.pfnReset(signalled));
  CHECK_RESULT(fences.pfnQueryStatus(signalled), NOT_READY);
  check::destroy(signalled, held.fence);
}

TEST(of_work) {
  Held held;
  OK(check::execute(held.queue, held.list, held.fence));
  CHECK_RESULT(fences.pfnQueryStatus(held.fence), NOT_READY);
  CHECK_RESULT(fences.pfnHostSynchronize(held.fence, 2'000'000), NOT_READY);
  OK(fences.pfnReset(held.fence));  // what is in flight stays
  OK(l0.ze_event.pfnHostSignal(held.gate));
  OK(fences.pfnHostSynchronize(held.fence, ever));
  OK(fences.pfnQueryStatus(held.fence));
  OK(fences.pfnReset(held.fence));
  CHECK_RESULT(fences.pfnQueryStatus(held.fence), NOT_READY);
  OK(check::execute(held.queue, held.list, held.fence));
  OK(fences.pfnHostSynchronize(held.fence, INT64_MAX));
  check::destroy(held.fence);
}

TEST(wrong_arguments) {
  Held held;
  const auto other = check::make_queue(held.context);
  CHECK_RESULT(check::execute(other, held.list, held.fence), ERROR_INVALID_SYNCHRONIZATION_OBJECT);
  ze_fence_handle_t fence = nullptr;
  ze_fence_desc_t desc{ZE_STRUCTURE_TYPE_EVENT_DESC, nullptr, 0};
  CHECK_RESULT(fences.pfnCreate(other, &desc, &fence), ERROR_INVALID_ARGUMENT);
  desc = {ZE_STRUCTURE_TYPE_FENCE_DESC, nullptr, 2};
  CHECK_RESULT(fences.pfnCreate(other, &desc, &fence), ERROR_INVALID_ENUMERATION);
  CHECK_RESULT(fences.pfnCreate(other, nullptr, &fence), ERROR_INVALID_NULL_POINTER);
  CHECK_RESULT(fences.pfnCreate(other, &desc, nullptr), ERROR_INVALID_NULL_POINTER);
  check::destroy(other, held.fence);
}

TEST(destroyed_while_a_host_waits) {
  Held held;
  OK(check::execute(held.queue, held.list, held.fence));
  std::thread host([&] { CHECK_RESULT(fences.pfnHostSynchronize(held.fence, ever), ERROR_INVALID_ARGUMENT); });
  check::sleep_ms(20);
  check::destroy(held.fence);
  host.join();
}

TEST(outlives_its_queue) {
  const auto context = check::make_context();
  const auto queue = check::make_queue(context);
  const auto list = check::make_list(context);
  const auto fence = check::make_fence(queue);
  OK(l0.ze_command_list.pfnClose(list));
  OK(check::execute(queue, list, fence));
  check::destroy(queue);
  OK(fences.pfnHostSynchronize(fence, ever));
  check::destroy(fence, list, context);
}
