// After a fork the child has the parent's objects but none of its threads: nothing may hang.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "check.hpp"

using check::ever;

namespace {

struct System {
  ze_context_handle_t context;
  ze_command_queue_handle_t queue;
  ze_command_list_handle_t held, empty, immediate;
  ze_event_pool_handle_t pool;
  ze_event_handle_t gate;
  ze_fence_handle_t fence;
  char* memory;
};
System all;

void destroy_all() {
  check::destroy(all.gate, all.pool, all.fence, all.held, all.empty, all.immediate, all.queue, all.context);
}

void make_all() {
  all.context = check::make_context();
  all.queue = check::make_queue(all.context);
  all.held = check::make_list(all.context);
  all.empty = check::make_list(all.context);
  all.immediate = check::make_immediate(all.context, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
  all.pool = check::make_pool(all.context, 1);
  all.gate = check::make_event(all.pool, 0);
  all.fence = check::make_fence(all.queue);
  all.memory = check::make_memory(all.context, 4096);
  OK(l0.ze_command_list.pfnAppendWaitOnEvents(all.held, 1, &all.gate));
  OK(l0.ze_command_list.pfnClose(all.held));
  OK(l0.ze_command_list.pfnClose(all.empty));
  OK(check::execute(all.queue, all.held, all.fence));
  check::sleep_ms(10);
}

void finish_all() {
  OK(l0.ze_event.pfnHostSignal(all.gate));
  OK(l0.ze_fence.pfnHostSynchronize(all.fence, ever));
  destroy_all();
}

}  // namespace

// What waits for the parent's device says that it cannot; what does not need it goes on.
TEST(in_the_middle_of_work) {
  make_all();
  check::in_child([] {
    CHECK_RESULT(check::execute(all.queue, all.empty), ERROR_UNINITIALIZED);
    CHECK_RESULT(l0.ze_fence.pfnHostSynchronize(all.fence, ever), ERROR_UNINITIALIZED);
    CHECK_RESULT(l0.ze_command_queue.pfnSynchronize(all.queue, ever), ERROR_UNINITIALIZED);
    CHECK_RESULT(l0.ze_event.pfnHostSynchronize(all.gate, ever), ERROR_UNINITIALIZED);
    CHECK_RESULT(l0.ze_event.pfnHostSignal(all.gate), ERROR_UNINITIALIZED);
    CHECK_RESULT(l0.ze_event.pfnHostReset(all.gate), ERROR_UNINITIALIZED);
    CHECK_RESULT(l0.ze_event.pfnQueryStatus(all.gate), ERROR_UNINITIALIZED);
    CHECK_RESULT(l0.ze_fence.pfnReset(all.fence), ERROR_UNINITIALIZED);
    CHECK_RESULT(l0.ze_command_list.pfnReset(all.empty), ERROR_UNINITIALIZED);
    const auto list = check::make_list(all.context);
    CHECK_RESULT(l0.ze_command_list.pfnAppendWaitOnEvents(list, 1, &all.gate), ERROR_UNINITIALIZED);
    check::destroy(list);
    CHECK_RESULT(l0.ze_command_list.pfnAppendBarrier(all.immediate, nullptr, 0, nullptr), ERROR_UNINITIALIZED);
    all.memory[0] = 5;
    destroy_all();
  });
  CHECK(all.memory[0] == 5);  // shared memory is shared
  finish_all();
}

// The thread sanitizer knows the parent's threads in the child too, and takes a new one for one of them.
#ifndef __SANITIZE_THREAD__
TEST(starting_anew) {
  make_all();
  check::in_child([] {
    const auto context = check::make_context();
    const auto queue = check::make_queue(context);
    const auto list = check::make_list(context);
    const auto fence = check::make_fence(queue);
    const char seven = 7;
    char* memory = check::make_memory(context, 4096);
    OK(l0.ze_command_list.pfnAppendMemoryFill(list, memory, &seven, 1, 4096, nullptr, 0, nullptr));
    OK(l0.ze_command_list.pfnClose(list));
    OK(check::execute(queue, list, fence));
    OK(l0.ze_fence.pfnHostSynchronize(fence, ever));
    CHECK(memory[4095] == 7);
    check::destroy(fence, list, queue, context);
  });
  finish_all();
}
#endif

// The address sanitizer's own allocator may stay locked in a child.
#ifndef __SANITIZE_ADDRESS__
namespace {

// Goes through all locks of the driver but those of queues, which only a queue's user meets.
void visit_all_locks(ze_context_handle_t context) {
  const auto own = check::make_context();
  const auto pool = check::make_pool(own, 1);
  const auto event = check::make_event(pool, 0);
  char* memory = check::make_memory(context, 4096);
  OK(l0.ze_event.pfnHostSignal(event));
  OK(l0.ze_mem.pfnFree(context, memory));
  check::destroy(event, pool, own);
}

}  // namespace

// Threads that hold a lock while the process forks do not exist in the child.
TEST(while_other_threads_are_inside) {
  const auto context = check::make_context();
  OK(l0sd.record_start(1));
  OK(l0sd.inject("zeFenceCreate", UINT64_MAX, ZE_RESULT_ERROR_UNKNOWN, 1));
  std::atomic<bool> over{false};
  std::thread threads[2];
  for (std::thread& thread : threads) {
    thread = std::thread([&] {
      while (!over) {
        visit_all_locks(context);
      }
    });
  }
  int good = 0;
  constexpr int forks = 200;
  for (int i = 0; i < forks; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      visit_all_locks(context);
      check::record();
      check::destroy(context);
      _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    good += WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 1 : 0;
  }
  over = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(good == forks);
  l0sd.record_stop();
  l0sd.record_reset();
  check::destroy(context);
}
#endif
