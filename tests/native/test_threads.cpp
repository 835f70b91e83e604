// Many threads at once: for the thread sanitizer above all.
#include <atomic>
#include <thread>
#include <vector>

#include "check.hpp"

using check::ever;
using check::npu;

namespace {

// All begin at once.
template <class Body>
void in_threads(int count, Body body) {
  std::atomic<int> missing{count};
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&missing, body, i] {
      --missing;
      while (missing > 0) {
        std::this_thread::yield();
      }
      body(i);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

bool alive_or_gone(ze_result_t result) {
  return result == ZE_RESULT_SUCCESS || result == ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

}  // namespace

// There is one first init in a process, so it takes many processes to meet.
TEST(first_init) {
  for (int i = 0; i < 20; ++i) {
    check::in_child([] {
      std::atomic<ze_driver_handle_t> first{nullptr};
      in_threads(4, [&](int) {
        OK(l0.ze_global.pfnInit(0));
        uint32_t count = 1;
        ze_driver_handle_t driver = nullptr;
        OK(l0.ze_driver.pfnGet(&count, &driver));
        ze_driver_handle_t expected = nullptr;
        CHECK(first.compare_exchange_strong(expected, driver) || expected == driver);
      });
    });
  }
}

TEST(allocations) {
  const auto context = check::make_context();
  in_threads(4, [&](int number) {
    ze_memory_allocation_properties_t properties{};
    properties.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES;
    for (int i = 0; i < 200; ++i) {
      char* memory = check::make_memory(context, size_t{4096} * static_cast<size_t>(1 + (i + number) % 5));
      memory[0] = 1;
      OK(l0.ze_mem.pfnGetAllocProperties(context, memory, &properties, nullptr));
      OK(l0.ze_mem.pfnFree(context, memory));
    }
  });
  check::destroy(context);
}

TEST(two_queues_under_four_threads) {
  const auto context = check::make_context();
  const ze_command_queue_handle_t queues[] = {check::make_queue(context), check::make_queue(context)};
  const auto pool = check::make_pool(context, 8);
  in_threads(4, [&](int number) {
    const auto queue = queues[number % 2];
    const auto fence = check::make_fence(queue);
    const auto done = check::make_event(pool, static_cast<uint32_t>(number));
    auto gate = check::make_event(pool, static_cast<uint32_t>(4 + number));
    for (int i = 0; i < 60; ++i) {
      const auto list = check::make_list(context);
      OK(l0.ze_command_list.pfnAppendBarrier(list, done, 1, &gate));
      OK(l0.ze_command_list.pfnClose(list));
      OK(check::execute(queue, list, fence));
      check::destroy(list);
      OK(l0.ze_event.pfnHostSignal(gate));
      OK(l0.ze_fence.pfnHostSynchronize(fence, ever));
      OK(l0.ze_event.pfnQueryStatus(done));
      OK(l0.ze_event.pfnHostReset(done));
      OK(l0.ze_event.pfnHostReset(gate));
      OK(l0.ze_fence.pfnReset(fence));
    }
    check::destroy(fence, done, gate);
  });
  check::destroy(pool, queues[0], queues[1], context);
}

TEST(a_queue_goes_while_its_event_is_signalled) {
  const auto context = check::make_context();
  const auto pool = check::make_pool(context, 1);
  for (int i = 0; i < 30; ++i) {
    const auto queue = check::make_queue(context);
    const auto list = check::make_list(context);
    auto gate = check::make_event(pool, 0);
    OK(l0.ze_command_list.pfnAppendWaitOnEvents(list, 1, &gate));
    OK(l0.ze_command_list.pfnClose(list));
    OK(check::execute(queue, list));
    std::thread signaller([gate] { OK(l0.ze_event.pfnHostSignal(gate)); });
    check::destroy(queue);
    signaller.join();
    check::destroy(gate, list);
  }
  check::destroy(pool, context);
}

TEST(objects_go_while_others_use_them) {
  std::atomic<ze_context_handle_t> shared{check::make_context()};
  std::atomic<bool> over{false};
  std::thread user([&] {
    const auto desc = check::host_desc();
    while (!over) {
      const ze_context_handle_t context = shared;
      void* memory = nullptr;
      CHECK(alive_or_gone(l0.ze_context.pfnGetStatus(context)));
      CHECK(alive_or_gone(l0.ze_mem.pfnAllocHost(context, &desc, 1, 0, &memory)));
    }
  });
  for (int i = 0; i < 100; ++i) {
    const ze_context_handle_t old = shared.exchange(check::make_context());
    check::destroy(old);
  }
  over = true;
  user.join();
  check::destroy(shared.load());
}

TEST(record_and_faults_while_calls_are_made) {
  std::atomic<bool> over{false};
  std::thread observer([&] {
    while (!over) {
      OK(l0sd.record_start(1));
      CHECK(check::record().front() == '{');
      OK(l0sd.inject("zeDeviceGetStatus", 1, ZE_RESULT_ERROR_DEVICE_LOST, 1));
      l0sd.record_reset();
      l0sd.clear_faults();
      l0sd.record_stop();
    }
  });
  in_threads(2, [](int) {
    for (int i = 0; i < 1000; ++i) {
      const ze_result_t result = l0.ze_device.pfnGetStatus(npu().device);
      CHECK(result == ZE_RESULT_SUCCESS || result == ZE_RESULT_ERROR_DEVICE_LOST);
    }
  });
  over = true;
  observer.join();
  l0sd.record_reset();
}
