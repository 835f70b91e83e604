// Event pools and events, between the host and queues and between queues.
#include <cstring>
#include <thread>

#include "check.hpp"

using check::ever;
using check::npu;

namespace {

auto& events = l0.ze_event;
auto& lists = l0.ze_command_list;

struct Bench {
  ze_context_handle_t context = check::make_context();
  ze_command_queue_handle_t queue = check::make_queue(context);
  ze_command_list_handle_t list = check::make_list(context);
  ze_event_pool_handle_t pool = check::make_pool(context, 4);
  ze_event_handle_t e[3] = {check::make_event(pool, 0), check::make_event(pool, 1), check::make_event(pool, 2)};

  ~Bench() { check::destroy(e[0], e[1], e[2], pool, list, queue, context); }
};

}  // namespace

TEST(pools) {
  const auto context = check::make_context();
  auto create = l0.ze_event_pool.pfnCreate;
  ze_device_handle_t device = npu().device;
  ze_event_pool_desc_t desc{ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, nullptr, ZE_EVENT_POOL_FLAG_HOST_VISIBLE, 0};
  ze_event_pool_handle_t pool = nullptr;
  CHECK_RESULT(create(context, &desc, 0, nullptr, &pool), ERROR_INVALID_SIZE);
  desc.count = UINT32_MAX;  // costs nothing until events are made
  CHECK_RESULT(create(context, &desc, 1, nullptr, &pool), ERROR_INVALID_SIZE);
  OK(create(context, &desc, 0, nullptr, &pool));
  check::destroy(pool);
  desc.flags = 0x100;
  CHECK_RESULT(create(context, &desc, 1, &device, &pool), ERROR_INVALID_ENUMERATION);
  CHECK_RESULT(create(context, nullptr, 1, &device, &pool), ERROR_INVALID_NULL_POINTER);
  desc.flags = 0;
  desc.stype = ZE_STRUCTURE_TYPE_EVENT_DESC;
  CHECK_RESULT(create(context, &desc, 1, &device, &pool), ERROR_INVALID_ARGUMENT);
  pool = check::make_pool(context, 1);
  ze_context_handle_t of = nullptr;
  OK(l0.ze_event_pool.pfnGetContextHandle(pool, &of));
  CHECK(of == context);
  check::destroy(pool, context);
}

TEST(an_index_has_one_event) {
  const auto context = check::make_context();
  const auto pool = check::make_pool(context, 2);
  ze_event_desc_t desc{ZE_STRUCTURE_TYPE_EVENT_DESC, nullptr, 2, 0, 0};
  ze_event_handle_t first = nullptr;
  ze_event_handle_t second = nullptr;
  CHECK_RESULT(events.pfnCreate(pool, &desc, &first), ERROR_INVALID_ARGUMENT);
  desc.index = 1;
  OK(events.pfnCreate(pool, &desc, &first));
  CHECK_RESULT(events.pfnCreate(pool, &desc, &second), ERROR_INVALID_ARGUMENT);
  check::destroy(first);
  OK(events.pfnCreate(pool, &desc, &second));
  CHECK(first != second);
  CHECK_RESULT(events.pfnQueryStatus(first), ERROR_INVALID_ARGUMENT);
  desc.index = 0;
  desc.signal = 0x10;
  CHECK_RESULT(events.pfnCreate(pool, &desc, &first), ERROR_INVALID_ENUMERATION);
  desc.signal = 0;
  desc.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC;
  CHECK_RESULT(events.pfnCreate(pool, &desc, &first), ERROR_INVALID_ARGUMENT);
  check::destroy(pool);  // its events live on
  OK(events.pfnHostSignal(second));
  OK(events.pfnQueryStatus(second));
  check::destroy(second, context);
}

TEST(on_the_host) {
  Bench bench;
  CHECK_RESULT(events.pfnQueryStatus(bench.e[0]), NOT_READY);
  CHECK_RESULT(events.pfnHostSynchronize(bench.e[0], 0), NOT_READY);
  CHECK_RESULT(events.pfnHostSynchronize(bench.e[0], 1'000'000), NOT_READY);
  std::thread signaller([&] {
    check::sleep_ms(5);
    OK(events.pfnHostSignal(bench.e[0]));
  });
  OK(events.pfnHostSynchronize(bench.e[0], ever));
  signaller.join();
  OK(events.pfnHostReset(bench.e[0]));
  CHECK_RESULT(events.pfnQueryStatus(bench.e[0]), NOT_READY);
}

TEST(hold_back_a_command) {
  Bench bench;
  const auto fence = check::make_fence(bench.queue);
  char* to = check::make_memory(bench.context, 4096);
  char* from = check::make_memory(bench.context, 4096);
  std::memset(from, 7, 4096);
  ze_event_handle_t waits[] = {bench.e[0], bench.e[2]};
  OK(lists.pfnAppendMemoryCopy(bench.list, to, from, 4096, bench.e[1], 2, waits));
  OK(lists.pfnAppendEventReset(bench.list, bench.e[0]));
  OK(lists.pfnClose(bench.list));
  OK(check::execute(bench.queue, bench.list, fence));
  OK(events.pfnHostSignal(bench.e[2]));
  CHECK_RESULT(l0.ze_fence.pfnHostSynchronize(fence, 5'000'000), NOT_READY);
  CHECK(to[0] == 0);
  CHECK_RESULT(events.pfnQueryStatus(bench.e[1]), NOT_READY);
  OK(events.pfnHostSignal(bench.e[0]));
  OK(l0.ze_fence.pfnHostSynchronize(fence, ever));
  OK(events.pfnQueryStatus(bench.e[1]));
  CHECK(to[4095] == 7);
  CHECK_RESULT(events.pfnQueryStatus(bench.e[0]), NOT_READY);
  check::destroy(fence);
}

TEST(between_queues) {
  Bench bench;
  const auto second_queue = check::make_queue(bench.context);
  const auto second_list = check::make_list(bench.context);
  OK(lists.pfnAppendWaitOnEvents(bench.list, 1, &bench.e[1]));
  OK(lists.pfnAppendSignalEvent(bench.list, bench.e[2]));
  OK(lists.pfnAppendSignalEvent(second_list, bench.e[1]));
  OK(lists.pfnClose(bench.list));
  OK(lists.pfnClose(second_list));
  OK(check::execute(bench.queue, bench.list));
  OK(check::execute(second_queue, second_list));
  OK(events.pfnHostSynchronize(bench.e[2], ever));
  OK(l0.ze_command_queue.pfnSynchronize(bench.queue, ever));
  check::destroy(second_list, second_queue);
}

TEST(destroyed_while_a_host_waits) {
  const auto context = check::make_context();
  const auto pool = check::make_pool(context, 1);
  const auto event = check::make_event(pool, 0);
  std::thread host([&] { CHECK_RESULT(events.pfnHostSynchronize(event, ever), ERROR_INVALID_ARGUMENT); });
  check::sleep_ms(20);
  check::destroy(event);
  host.join();
  check::destroy(pool, context);
}

TEST(getters) {
  Bench bench;
  ze_event_pool_handle_t pool = nullptr;
  OK(events.pfnGetEventPool(bench.e[0], &pool));
  CHECK(pool == bench.pool);
  ze_event_scope_flags_t scope = 0;
  OK(events.pfnGetSignalScope(bench.e[0], &scope));
  CHECK(scope == ZE_EVENT_SCOPE_FLAG_HOST);
  OK(events.pfnGetWaitScope(bench.e[0], &scope));
  CHECK(scope == ZE_EVENT_SCOPE_FLAG_HOST);
  CHECK_RESULT(events.pfnGetWaitScope(bench.e[0], nullptr), ERROR_INVALID_NULL_POINTER);
}
