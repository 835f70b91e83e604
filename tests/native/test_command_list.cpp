// Command lists: what they take, in which order it happens, and immediate ones.
#include <cstring>
#include <vector>

#include "check.hpp"

using check::ever;
using check::execute;
using check::make_context;
using check::make_list;
using check::npu;

namespace {

auto& lists = l0.ze_command_list;

struct Bench {
  ze_context_handle_t context = make_context();
  ze_command_queue_handle_t queue = check::make_queue(context);
  ze_command_list_handle_t list = make_list(context);
  char* to = check::make_memory(context, 8192);
  char* from = check::make_memory(context, 8192);

  void run() {
    OK(lists.pfnClose(list));
    OK(execute(queue, list));
    OK(l0.ze_command_queue.pfnSynchronize(queue, ever));
  }
  ~Bench() { check::destroy(list, queue, context); }
};

}  // namespace

TEST(create_with_wrong_arguments) {
  const auto context = make_context();
  ze_command_list_desc_t desc{ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC, nullptr, 0, 0};
  ze_command_list_handle_t list = nullptr;
  CHECK_RESULT(lists.pfnCreate(nullptr, npu().device, &desc, &list), ERROR_INVALID_NULL_HANDLE);
  CHECK_RESULT(lists.pfnCreate(context, nullptr, &desc, &list), ERROR_INVALID_NULL_HANDLE);
  CHECK_RESULT(lists.pfnCreate(context, npu().device, nullptr, &list), ERROR_INVALID_NULL_POINTER);
  CHECK_RESULT(lists.pfnCreate(context, npu().device, &desc, nullptr), ERROR_INVALID_NULL_POINTER);
  desc.commandQueueGroupOrdinal = 1;
  CHECK_RESULT(lists.pfnCreate(context, npu().device, &desc, &list), ERROR_INVALID_ARGUMENT);
  desc.commandQueueGroupOrdinal = 0;
  desc.flags = 0x80000000;
  CHECK_RESULT(lists.pfnCreate(context, npu().device, &desc, &list), ERROR_INVALID_ENUMERATION);
  desc.flags = 0;
  desc.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
  CHECK_RESULT(lists.pfnCreate(context, npu().device, &desc, &list), ERROR_INVALID_ARGUMENT);
  CHECK(list == nullptr);
  check::destroy(context);
}

TEST(open_and_closed) {
  Bench bench;
  CHECK_RESULT(execute(bench.queue, bench.list), ERROR_UNINITIALIZED);
  OK(lists.pfnAppendBarrier(bench.list, nullptr, 0, nullptr));
  OK(lists.pfnClose(bench.list));
  OK(lists.pfnClose(bench.list));
  CHECK_RESULT(lists.pfnAppendBarrier(bench.list, nullptr, 0, nullptr), ERROR_NOT_AVAILABLE);
  OK(execute(bench.queue, bench.list));
  OK(lists.pfnReset(bench.list));
  CHECK_RESULT(execute(bench.queue, bench.list), ERROR_UNINITIALIZED);
  OK(lists.pfnAppendBarrier(bench.list, nullptr, 0, nullptr));
  OK(l0.ze_command_queue.pfnSynchronize(bench.queue, ever));
}

TEST(copies) {
  Bench bench;
  std::memset(bench.from, 1, 8192);
  std::memset(bench.to, 2, 8192);
  OK(lists.pfnAppendMemoryCopy(bench.list, bench.to + 1, bench.from, 100, nullptr, 0, nullptr));
  OK(lists.pfnAppendBarrier(bench.list, nullptr, 0, nullptr));
  OK(lists.pfnAppendMemoryCopy(bench.list, bench.to + 300, bench.to, 102, nullptr, 0, nullptr));
  bench.run();
  CHECK(bench.to[0] == 2 && bench.to[1] == 1 && bench.to[100] == 1 && bench.to[101] == 2);
  CHECK(bench.to[300] == 2 && bench.to[301] == 1 && bench.to[401] == 2);
}

TEST(fills) {
  for (size_t length : {size_t{1}, size_t{2}, size_t{4}}) {
    Bench bench;
    const char pattern[] = {1, 2, 3, 4};
    std::memset(bench.to, 9, 8192);
    OK(lists.pfnAppendMemoryFill(bench.list, bench.to + 200, pattern, length, 1003, nullptr, 0, nullptr));
    OK(lists.pfnAppendMemoryFill(bench.list, bench.to, pattern, length, 0, nullptr, 0, nullptr));
    bench.run();
    bool as_asked = true;
    for (size_t i = 0; i < 1003; ++i) {
      as_asked &= bench.to[200 + i] == pattern[i % length];
    }
    CHECK(as_asked && bench.to[0] == 9 && bench.to[199] == 9 && bench.to[1203] == 9);
  }
}

TEST(time_stamps) {
  Bench bench;
  OK(lists.pfnAppendWriteGlobalTimestamp(bench.list, reinterpret_cast<uint64_t*>(bench.to), nullptr, 0, nullptr));
  OK(lists.pfnAppendWriteGlobalTimestamp(bench.list, reinterpret_cast<uint64_t*>(bench.to + 8), nullptr, 0, nullptr));
  bench.run();
  uint64_t stamps[2];
  std::memcpy(stamps, bench.to, sizeof stamps);
  CHECK(stamps[0] > 0 && stamps[1] >= stamps[0]);
}

TEST(memory_that_is_not_the_context_s) {
  Bench bench;
  std::vector<char> foreign(64);
  const uint32_t pattern = 0;
  auto copy = [&](void* to, const void* from, size_t size) {
    return lists.pfnAppendMemoryCopy(bench.list, to, from, size, nullptr, 0, nullptr);
  };
  auto fill = [&](void* to, size_t length, size_t size) {
    return lists.pfnAppendMemoryFill(bench.list, to, &pattern, length, size, nullptr, 0, nullptr);
  };
  CHECK_RESULT(copy(bench.to, foreign.data(), 8), ERROR_UNINITIALIZED);
  CHECK_RESULT(copy(foreign.data(), bench.from, 8), ERROR_UNINITIALIZED);
  CHECK_RESULT(copy(bench.to, bench.from, 8193), ERROR_UNINITIALIZED);
  CHECK_RESULT(copy(bench.to + 1, bench.from, SIZE_MAX), ERROR_UNINITIALIZED);
  CHECK_RESULT(copy(nullptr, bench.from, 8), ERROR_INVALID_NULL_POINTER);
  CHECK_RESULT(copy(bench.to, nullptr, 8), ERROR_INVALID_NULL_POINTER);
  CHECK_RESULT(fill(foreign.data(), 4, 8), ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_RESULT(fill(bench.to, 3, 8), ERROR_INVALID_SIZE);
  CHECK_RESULT(fill(bench.to, 8, 8), ERROR_INVALID_SIZE);
  CHECK_RESULT(fill(bench.to, 0, 8), ERROR_INVALID_SIZE);
  CHECK_RESULT(fill(bench.to + 8000, 4, 193), ERROR_UNINITIALIZED);
  auto* last = reinterpret_cast<uint64_t*>(bench.to + 8188);
  CHECK_RESULT(lists.pfnAppendWriteGlobalTimestamp(bench.list, last, nullptr, 0, nullptr), ERROR_UNINITIALIZED);
}

TEST(wait_events_that_are_wrong) {
  Bench bench;
  ze_event_handle_t null_event = nullptr;
  CHECK_RESULT(lists.pfnAppendBarrier(bench.list, nullptr, 1, nullptr), ERROR_INVALID_SIZE);
  CHECK_RESULT(lists.pfnAppendBarrier(bench.list, nullptr, 1, &null_event), ERROR_INVALID_NULL_HANDLE);
  CHECK_RESULT(lists.pfnAppendWaitOnEvents(bench.list, 1, nullptr), ERROR_INVALID_NULL_POINTER);
  CHECK_RESULT(lists.pfnAppendWaitOnEvents(bench.list, 0, &null_event), ERROR_INVALID_SIZE);
  CHECK_RESULT(lists.pfnAppendSignalEvent(bench.list, nullptr), ERROR_INVALID_NULL_HANDLE);
  CHECK_RESULT(lists.pfnAppendEventReset(bench.list, nullptr), ERROR_INVALID_NULL_HANDLE);
}

// Memory, events and the list itself may go while a queue still works on them.
TEST(commands_own_what_they_touch) {
  const auto context = make_context();
  const auto queue = check::make_queue(context);
  const auto list = make_list(context);
  const auto pool = check::make_pool(context, 2);
  auto gate = check::make_event(pool, 0);
  const auto fence = check::make_fence(queue);
  char* to = check::make_memory(context, 4096);
  char* from = check::make_memory(context, 4096);
  OK(lists.pfnAppendMemoryCopy(list, to, from, 4096, nullptr, 1, &gate));
  OK(lists.pfnClose(list));
  OK(execute(queue, list, fence));
  OK(l0.ze_mem.pfnFree(context, to));
  OK(l0.ze_mem.pfnFree(context, from));
  check::destroy(list, pool);
  OK(l0.ze_event.pfnHostSignal(gate));
  OK(l0.ze_fence.pfnHostSynchronize(fence, ever));
  check::destroy(gate, fence, queue, context);
}

TEST(immediate_lists) {
  const auto context = make_context();
  char* memory = check::make_memory(context, 4096);
  const char seven = 7;
  const char nine = 9;
  const auto synchronous = check::make_immediate(context, ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
  OK(lists.pfnAppendMemoryFill(synchronous, memory, &seven, 1, 4096, nullptr, 0, nullptr));
  CHECK(memory[4095] == 7);
  const auto list = check::make_immediate(context, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
  const auto pool = check::make_pool(context, 1);
  auto gate = check::make_event(pool, 0);
  OK(lists.pfnHostSynchronize(list, 0));
  OK(lists.pfnAppendMemoryFill(list, memory, &nine, 1, 4096, nullptr, 1, &gate));
  CHECK_RESULT(lists.pfnHostSynchronize(list, 1'000'000), NOT_READY);
  CHECK(memory[0] == 7);
  OK(l0.ze_event.pfnHostSignal(gate));
  OK(lists.pfnHostSynchronize(list, ever));
  CHECK(memory[0] == 9);
  OK(lists.pfnClose(list));
  OK(lists.pfnReset(list));
  OK(lists.pfnAppendMemoryFill(list, memory, &seven, 1, 4096, nullptr, 0, nullptr));
  const auto queue = check::make_queue(context);
  CHECK_RESULT(execute(queue, list), ERROR_INVALID_COMMAND_LIST_TYPE);
  check::destroy(list, synchronous);  // finishes what was appended
  CHECK(memory[0] == 7);
  check::destroy(gate, pool, queue, context);
}

TEST(getters) {
  const auto context = make_context();
  const auto list = make_list(context);
  const auto immediate = check::make_immediate(context, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
  ze_context_handle_t of = nullptr;
  OK(lists.pfnGetContextHandle(list, &of));
  CHECK(of == context);
  ze_device_handle_t device = nullptr;
  OK(lists.pfnGetDeviceHandle(list, &device));
  CHECK(device == npu().device);
  ze_bool_t answer = 9;
  OK(lists.pfnIsImmediate(list, &answer));
  CHECK(answer == 0);
  OK(lists.pfnIsImmediate(immediate, &answer));
  CHECK(answer == 1);
  uint32_t number = 9;
  OK(lists.pfnGetOrdinal(list, &number));
  CHECK(number == 0);
  CHECK_RESULT(lists.pfnImmediateGetIndex(list, &number), ERROR_INVALID_ARGUMENT);
  ze_command_queue_mode_t mode{};
  OK(lists.pfnImmediateGetMode(immediate, &mode));
  CHECK(mode == ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
  CHECK_RESULT(lists.pfnGetOrdinal(list, nullptr), ERROR_INVALID_NULL_POINTER);
  CHECK_RESULT(lists.pfnHostSynchronize(list, 0), ERROR_UNINITIALIZED);
  check::destroy(list, immediate, context);
}
