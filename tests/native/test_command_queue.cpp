// Command queues: order, failures, destruction in the middle of work, and the end of the process.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "own_commands.hpp"

using check::append;
using check::closed_list;
using check::ever;
using check::execute;
using check::npu;

namespace {

auto& queues = l0.ze_command_queue;
auto& fences = l0.ze_fence;
auto& events = l0.ze_event;

struct Bench {
  ze_context_handle_t context = check::make_context();
  ze_command_queue_handle_t queue = check::make_queue(context);
  ze_event_pool_handle_t pool = check::make_pool(context, 4);
  std::atomic<int> ran{0};

  ~Bench() { check::destroy(pool, context); }
};

}  // namespace

TEST(create_with_wrong_arguments) {
  const auto context = check::make_context();
  auto desc = check::queue_desc();
  ze_command_queue_handle_t queue = nullptr;
  CHECK_RESULT(queues.pfnCreate(nullptr, npu().device, &desc, &queue), ERROR_INVALID_NULL_HANDLE);
  CHECK_RESULT(queues.pfnCreate(context, nullptr, &desc, &queue), ERROR_INVALID_NULL_HANDLE);
  CHECK_RESULT(queues.pfnCreate(context, npu().device, nullptr, &queue), ERROR_INVALID_NULL_POINTER);
  CHECK_RESULT(queues.pfnCreate(context, npu().device, &desc, nullptr), ERROR_INVALID_NULL_POINTER);
  auto refused = [&](auto change) {
    auto wrong = check::queue_desc();
    change(wrong);
    return queues.pfnCreate(context, npu().device, &wrong, &queue);
  };
  CHECK_RESULT(refused([](auto& wrong) { wrong.ordinal = 1; }), ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(refused([](auto& wrong) { wrong.flags = 64; }), ERROR_INVALID_ENUMERATION);
  CHECK_RESULT(refused([](auto& wrong) { wrong.stype = ZE_STRUCTURE_TYPE_FENCE_DESC; }), ERROR_INVALID_ARGUMENT);
  int beyond = 7;
  CHECK_RESULT(refused([&](auto& wrong) { std::memcpy(&wrong.mode, &beyond, sizeof beyond); }),
               ERROR_INVALID_ENUMERATION);
  CHECK_RESULT(refused([&](auto& wrong) { std::memcpy(&wrong.priority, &beyond, sizeof beyond); }),
               ERROR_INVALID_ENUMERATION);
  CHECK(queue == nullptr);
  check::destroy(context);
}

TEST(npu_options) {
  const auto context = check::make_context();
  ze_command_queue_desc_npu_ext_2_t npu_desc{ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC_NPU_EXT_2, nullptr,
                                             ZE_NPU_COMMAND_QUEUE_OPTION_DEVICE_SYNC};
  auto desc = check::queue_desc(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
  desc.pNext = &npu_desc;
  ze_command_queue_handle_t queue = nullptr;
  CHECK_RESULT(queues.pfnCreate(context, npu().device, &desc, &queue), ERROR_INVALID_ENUMERATION);
  desc.mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
  npu_desc.options = 4;
  CHECK_RESULT(queues.pfnCreate(context, npu().device, &desc, &queue), ERROR_INVALID_ENUMERATION);
  npu_desc.options = 3;
  OK(queues.pfnCreate(context, npu().device, &desc, &queue));
  auto& table = check::extension<ze_command_queue_npu_dditable_ext_t>("ZE_extension_command_queue_npu");
  OK(table.pfnSetWorkloadType(queue, ZE_WORKLOAD_TYPE_BACKGROUND));
  CHECK_RESULT(table.pfnSetWorkloadType(nullptr, ZE_WORKLOAD_TYPE_BACKGROUND), ERROR_INVALID_NULL_HANDLE);
  check::destroy(queue, context);
}

TEST(execute_with_wrong_arguments) {
  Bench bench;
  auto list = closed_list(bench.context, [] {});
  ze_command_list_handle_t pair[] = {list, nullptr};
  CHECK_RESULT(queues.pfnExecuteCommandLists(bench.queue, 0, &list, nullptr), ERROR_INVALID_SIZE);
  CHECK_RESULT(queues.pfnExecuteCommandLists(bench.queue, 1, nullptr, nullptr), ERROR_INVALID_NULL_POINTER);
  CHECK_RESULT(queues.pfnExecuteCommandLists(bench.queue, 2, pair, nullptr), ERROR_INVALID_NULL_HANDLE);
  CHECK_RESULT(queues.pfnExecuteCommandLists(nullptr, 1, &list, nullptr), ERROR_INVALID_NULL_HANDLE);
  OK(queues.pfnSynchronize(bench.queue, 0));
  check::destroy(list, bench.queue);
}

TEST(lists_run_in_order) {
  Bench bench;
  std::string order;
  ze_command_list_handle_t lists[] = {closed_list(bench.context, [&] { order += "a"; }),
                                      closed_list(bench.context, [&] { order += "b"; })};
  OK(queues.pfnExecuteCommandLists(bench.queue, 2, lists, nullptr));
  OK(execute(bench.queue, lists[0]));
  OK(execute(bench.queue, lists[1]));
  OK(queues.pfnSynchronize(bench.queue, ever));
  CHECK(order == "abab");
  check::destroy(lists[0], lists[1], bench.queue);
}

TEST(getters) {
  Bench bench;
  uint32_t number = 9;
  OK(queues.pfnGetOrdinal(bench.queue, &number));
  CHECK(number == 0);
  OK(queues.pfnGetIndex(bench.queue, &number));
  ze_command_queue_mode_t mode{};
  OK(queues.pfnGetMode(bench.queue, &mode));
  CHECK(mode == ZE_COMMAND_QUEUE_MODE_DEFAULT);
  CHECK_RESULT(queues.pfnGetMode(bench.queue, nullptr), ERROR_INVALID_NULL_POINTER);
  check::destroy(bench.queue);
}

// What follows a failed command does not run, and nobody who waits takes it for a success.
TEST(a_failed_command) {
  Bench bench;
  const auto list = check::make_list(bench.context);
  const auto first = check::make_event(bench.pool, 0);
  const auto second = check::make_event(bench.pool, 1);
  const auto failed = check::make_fence(bench.queue);
  const auto fine = check::make_fence(bench.queue);
  append(list, [] { throw softdriver::Failure(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, "no more"); }, first);
  append(list, [&] { ++bench.ran; }, second);
  OK(l0.ze_command_list.pfnClose(list));
  const auto good = closed_list(bench.context, [&] { ++bench.ran; });
  ze_command_list_handle_t both[] = {list, good};
  OK(queues.pfnExecuteCommandLists(bench.queue, 2, both, failed));
  OK(execute(bench.queue, good, fine));
  CHECK_RESULT(fences.pfnHostSynchronize(failed, ever), ERROR_OUT_OF_DEVICE_MEMORY);
  OK(fences.pfnHostSynchronize(fine, ever));
  CHECK(bench.ran == 1);
  CHECK_RESULT(fences.pfnQueryStatus(failed), ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_RESULT(events.pfnHostSynchronize(first, ever), ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_RESULT(events.pfnQueryStatus(second), ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_RESULT(queues.pfnSynchronize(bench.queue, ever), ERROR_OUT_OF_DEVICE_MEMORY);
  OK(queues.pfnSynchronize(bench.queue, ever));
  OK(fences.pfnReset(failed));
  CHECK_RESULT(fences.pfnQueryStatus(failed), NOT_READY);
  check::destroy(list, good, first, second, failed, fine, bench.queue);
}

TEST(whatever_a_command_throws) {
  Bench bench;
  const auto fence = check::make_fence(bench.queue);
  auto fails = [&](std::function<void()> body, ze_result_t wanted) {
    const auto list = closed_list(bench.context, std::move(body));
    OK(execute(bench.queue, list, fence));
    CHECK(fences.pfnHostSynchronize(fence, ever) == wanted);
    OK(fences.pfnReset(fence));
    check::destroy(list);
  };
  fails([] { throw std::runtime_error("something"); }, ZE_RESULT_ERROR_UNKNOWN);
  fails([] { throw 3; }, ZE_RESULT_ERROR_UNKNOWN);
  fails([] { throw std::bad_alloc(); }, ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
  check::destroy(fence, bench.queue);
}

TEST(synchronous_queues_answer_at_once) {
  Bench bench;
  const auto queue = check::make_queue(bench.context, ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
  const auto good = closed_list(bench.context, [&] { ++bench.ran; });
  const auto bad = closed_list(bench.context, [] { throw std::runtime_error("something"); });
  OK(execute(queue, good));
  CHECK(bench.ran == 1);
  CHECK_RESULT(execute(queue, bad), ERROR_UNKNOWN);
  check::destroy(good, bad, queue, bench.queue);
}

TEST(failures_on_immediate_lists) {
  Bench bench;
  const auto synchronous = check::make_immediate(bench.context, ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
  bool thrown = false;
  try {
    append(synchronous, [] { throw softdriver::Failure(ZE_RESULT_ERROR_DEVICE_LOST, "lost"); });
  } catch (const softdriver::Failure& failure) {
    thrown = failure.result == ZE_RESULT_ERROR_DEVICE_LOST;
  }
  CHECK(thrown);
  const auto list = check::make_immediate(bench.context, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
  append(list, [] { throw 1; });
  CHECK_RESULT(l0.ze_command_list.pfnHostSynchronize(list, ever), ERROR_UNKNOWN);
  OK(l0.ze_command_list.pfnHostSynchronize(list, ever));
  check::destroy(list, synchronous, bench.queue);
}

TEST(destruction_finishes_what_can_run) {
  Bench bench;
  const auto list = closed_list(bench.context, [&] {
    check::sleep_ms(2);
    ++bench.ran;
  });
  for (int i = 0; i < 5; ++i) {
    OK(execute(bench.queue, list));
  }
  check::destroy(bench.queue);
  CHECK(bench.ran == 5);
  check::destroy(list);
}

TEST(destruction_gives_up_waits_for_events) {
  Bench bench;
  const auto list = check::make_list(bench.context);
  auto gate = check::make_event(bench.pool, 0);
  const auto told = check::make_event(bench.pool, 1);
  const auto fence = check::make_fence(bench.queue);
  OK(l0.ze_command_list.pfnAppendBarrier(list, told, 1, &gate));
  OK(l0.ze_command_list.pfnClose(list));
  OK(execute(bench.queue, list, fence));
  std::thread hosts[] = {
      std::thread([&] { CHECK_RESULT(fences.pfnHostSynchronize(fence, ever), ERROR_UNKNOWN); }),
      std::thread([&] { CHECK_RESULT(queues.pfnSynchronize(bench.queue, ever), ERROR_UNKNOWN); }),
      std::thread([&] { CHECK_RESULT(events.pfnHostSynchronize(told, ever), ERROR_UNKNOWN); }),
  };
  check::sleep_ms(20);
  check::destroy(bench.queue);
  for (std::thread& host : hosts) {
    host.join();
  }
  check::destroy(fence, gate, told, list);
}

// A process that exits lets a running command end; one that waits for an event does not hold it up.
TEST(exit_in_the_middle_of_work) {
  check::in_child([] {
    static std::atomic<bool> ended{false};
    std::atexit([] {
      if (!ended) {
        std::fputs("a command still runs\n", stderr);
        _exit(3);
      }
    });
    const auto context = check::make_context();
    const auto pool = check::make_pool(context, 1);
    auto gate = check::make_event(pool, 0);
    const auto waiting = check::make_list(context);
    OK(l0.ze_command_list.pfnAppendWaitOnEvents(waiting, 1, &gate));
    OK(l0.ze_command_list.pfnClose(waiting));
    OK(execute(check::make_queue(context), waiting));
    const auto slow = closed_list(context, [] {
      check::sleep_ms(50);
      ended = true;
    });
    OK(execute(check::make_queue(context), slow));
  });
}
