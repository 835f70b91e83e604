// Several drivers behind the embedded loader, each case in a process of its own. Two of them make their contexts in
// the process's heap: a number that one gives up is soon the other's. They look whether what they get is theirs.
#include <atomic>
#include <initializer_list>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

#include "loader_calls.hpp"

namespace {

constexpr ze_context_desc_t context_desc{ZE_STRUCTURE_TYPE_CONTEXT_DESC, nullptr, 0};

ze_context_handle_t make_context(ze_driver_handle_t driver) {
  ze_context_handle_t made = nullptr;
  OK(LOADER(ze_pfnContextCreate_t, zeContextCreate)(driver, &context_desc, &made));
  return made;
}

ze_result_t status(ze_context_handle_t context) {
  return LOADER(ze_pfnContextGetStatus_t, zeContextGetStatus)(context);
}

ze_result_t destroy(ze_context_handle_t context) { return LOADER(ze_pfnContextDestroy_t, zeContextDestroy)(context); }

ze_device_handle_t device_of(ze_driver_handle_t driver) {
  uint32_t count = 1;
  ze_device_handle_t device = nullptr;
  OK(LOADER(ze_pfnDeviceGet_t, zeDeviceGet)(driver, &count, &device));
  return device;
}

struct Pair {
  ze_driver_handle_t gpu;
  ze_driver_handle_t npu;
};

Pair heap_drivers() {
  use_drivers(path_of("L0PY_TEST_OLD_DRIVER"), path_of("L0PY_TEST_NPU_DRIVER"));
  uint32_t count = 2;
  ze_driver_handle_t found[2] = {};
  OK(init_drivers(UINT32_MAX, &count, found));
  CHECK(count == 2 && found[0] != found[1]);
  return {found[0], found[1]};
}

// Both must take the memory of a destroyed context for the next: then its number changes hands.
void churn(const Pair& drivers, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    ze_context_handle_t first = make_context(i % 2 == 0 ? drivers.gpu : drivers.npu);
    ze_context_handle_t second = make_context(i % 3 == 0 ? drivers.gpu : drivers.npu);
    OK(status(first));
    OK(destroy(first));
    OK(status(second));
    OK(destroy(second));
  }
}

}  // namespace

TEST(they_are_listed_one_after_the_other) {
  check::in_child([] {
    const Pair all = heap_drivers();
    const auto get = LOADER(ze_pfnDriverGet_t, zeDriverGet);
    for (const uint32_t room : {0u, 1u, 2u, 5u}) {
      for (const bool old_way : {false, true}) {
        ze_driver_handle_t found[5] = {};
        uint32_t count = room;
        OK(old_way ? get(&count, found) : init_drivers(UINT32_MAX, &count, found));
        CHECK(count == (room == 1 ? 1 : 2));
        CHECK(found[0] == (room > 0 ? all.gpu : nullptr) && found[1] == (room > 1 ? all.npu : nullptr));
        CHECK(found[2] == nullptr);
      }
    }
    uint32_t count = 0;
    OK(get(&count, nullptr));
    CHECK(count == 2);
    CHECK_RESULT(get(nullptr, nullptr), ERROR_INVALID_NULL_POINTER);
  });
}

TEST(each_type_alone) {
  check::in_child([] {
    const Pair all = heap_drivers();
    for (const auto& [flags, wanted] :
         {std::pair(ZE_INIT_DRIVER_TYPE_FLAG_GPU, all.gpu), std::pair(ZE_INIT_DRIVER_TYPE_FLAG_NPU, all.npu)}) {
      uint32_t count = 2;
      ze_driver_handle_t found[2] = {};
      OK(init_drivers(flags, &count, found));
      CHECK(count == 1 && found[0] == wanted);
    }
  });
}

TEST(a_type_that_is_asked_for_later) {
  check::in_child([] {
    use_drivers(path_of("L0PY_TEST_OLD_DRIVER"), path_of("L0PY_TEST_NPU_DRIVER"));
    OK(init(ZE_INIT_FLAG_GPU_ONLY));
    uint32_t count = 2;
    ze_driver_handle_t found[2] = {};
    const auto get = LOADER(ze_pfnDriverGet_t, zeDriverGet);
    OK(get(&count, found));
    CHECK(count == 1);
    ze_context_handle_t early = make_context(found[0]);
    OK(init(ZE_INIT_FLAG_VPU_ONLY));
    count = 2;
    OK(get(&count, found));
    CHECK(count == 2);
    OK(status(early));
    OK(status(make_context(found[1])));
  });
}

TEST(a_driver_listed_twice_is_one) {
  check::in_child([] {
    use_drivers(path_of("L0PY_TEST_OLD_DRIVER"), path_of("L0PY_TEST_OLD_DRIVER"));
    uint32_t count = 0;
    OK(init_drivers(UINT32_MAX, &count, nullptr));
    CHECK(count == 1);
  });
}

// What nobody gave out reaches a single driver, and none of several.
TEST(beside_a_driver_that_refuses_everything_calls_are_direct) {
  check::in_child([] {
    use_drivers(path_of("L0PY_TEST_FAILING_DRIVER"), path_of("L0PY_TEST_OLD_DRIVER"));
    OK(init());
    void* nobody = nullptr;
    CHECK_RESULT(status(reinterpret_cast<ze_context_handle_t>(&nobody)), ERROR_DEVICE_LOST);
  });
}

TEST(handles_of_no_driver) {
  check::in_child([] {
    const Pair drivers = heap_drivers();
    CHECK_RESULT(status(nullptr), ERROR_INVALID_NULL_HANDLE);
    CHECK_RESULT(status(reinterpret_cast<ze_context_handle_t>(uintptr_t{0x10})), ERROR_INVALID_ARGUMENT);
    ze_context_handle_t context = make_context(drivers.npu);
    OK(destroy(context));
    CHECK_RESULT(status(context), ERROR_INVALID_ARGUMENT);
    CHECK_RESULT(destroy(context), ERROR_INVALID_ARGUMENT);
    CHECK_RESULT(destroy(nullptr), ERROR_INVALID_NULL_HANDLE);
    uint32_t count = 0;
    CHECK_RESULT(LOADER(ze_pfnDeviceGet_t, zeDeviceGet)(nullptr, &count, nullptr), ERROR_INVALID_NULL_HANDLE);
    // A list decides where there is no handle of its own.
    const auto link = LOADER(ze_pfnModuleDynamicLink_t, zeModuleDynamicLink);
    CHECK_RESULT(link(0, nullptr, nullptr), ERROR_INVALID_NULL_HANDLE);
    auto none = reinterpret_cast<ze_module_handle_t>(uintptr_t{0x10});
    CHECK_RESULT(link(1, &none, nullptr), ERROR_INVALID_ARGUMENT);
    CHECK_RESULT(LOADER(ze_pfnMemFree_t, zeMemFree)(make_context(drivers.npu), nullptr), ERROR_UNSUPPORTED_FEATURE);
  });
}

TEST(handles_of_two_drivers_in_one_call) {
  check::in_child([] {
    const Pair drivers = heap_drivers();
    ze_device_handle_t devices[] = {device_of(drivers.gpu), device_of(drivers.npu)};
    ze_context_handle_t context = nullptr;
    const auto create = LOADER(ze_pfnContextCreateEx_t, zeContextCreateEx);
    CHECK_RESULT(create(drivers.gpu, &context_desc, 2, devices, &context), ERROR_INVALID_ARGUMENT);
    OK(create(drivers.gpu, &context_desc, 1, devices, &context));
    OK(create(drivers.npu, &context_desc, 1, devices + 1, &context));
    const auto barrier = LOADER(ze_pfnContextSystemBarrier_t, zeContextSystemBarrier);
    CHECK_RESULT(barrier(context, devices[0]), ERROR_INVALID_ARGUMENT);
    OK(barrier(context, devices[1]));
    ze_bool_t value = 7;
    const auto can_access = LOADER(ze_pfnDeviceCanAccessPeer_t, zeDeviceCanAccessPeer);
    OK(can_access(devices[0], devices[1], &value));
    CHECK(value == 0);
    CHECK_RESULT(can_access(devices[0], devices[0], &value), ERROR_UNSUPPORTED_FEATURE);
  });
}

// The one object that is not named first where it is destroyed.
TEST(an_object_destroyed_beside_its_context) {
  check::in_child([] {
    const Pair drivers = heap_drivers();
    ze_context_handle_t context = make_context(drivers.gpu);
    ze_context_handle_t other = make_context(drivers.npu);
    ze_physical_mem_handle_t memory = nullptr;
    OK(LOADER(ze_pfnPhysicalMemCreate_t, zePhysicalMemCreate)(context, device_of(drivers.gpu), nullptr, &memory));
    const auto destroy_memory = LOADER(ze_pfnPhysicalMemDestroy_t, zePhysicalMemDestroy);
    CHECK_RESULT(destroy_memory(other, memory), ERROR_INVALID_ARGUMENT);
    CHECK_RESULT(destroy_memory(nullptr, memory), ERROR_INVALID_NULL_HANDLE);
    OK(destroy_memory(context, memory));
    CHECK_RESULT(destroy_memory(context, memory), ERROR_INVALID_ARGUMENT);
    OK(status(context));
  });
}

// The map of handles grows, and entries move when others go.
TEST(many_objects) {
  check::in_child([] {
    const Pair drivers = heap_drivers();
    std::vector<ze_context_handle_t> contexts;
    for (int i = 0; i < 5000; ++i) contexts.push_back(make_context(i % 2 == 0 ? drivers.gpu : drivers.npu));
    for (size_t i = 0; i < contexts.size(); i += 3) OK(destroy(contexts[i]));
    for (size_t i = 0; i < contexts.size(); ++i) {
      if (i % 3 == 0) {
        CHECK_RESULT(status(contexts[i]), ERROR_INVALID_ARGUMENT);
      } else {
        OK(status(contexts[i]));
        OK(destroy(contexts[i]));
      }
    }
    OK(LOADER(ze_pfnDriverGetApiVersion_t, zeDriverGetApiVersion)(drivers.gpu,
                                                                  std::vector<ze_api_version_t>(1).data()));
  });
}

// The map is as full as it gets, so that entries move often while others are looked for.
TEST(threads_that_make_and_destroy) {
  check::in_child([] {
    const Pair drivers = heap_drivers();
    std::vector<ze_context_handle_t> kept;
    for (int i = 0; i < 470; ++i) kept.push_back(make_context(i % 2 == 0 ? drivers.gpu : drivers.npu));
    std::atomic<int> busy{3};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        std::vector<ze_context_handle_t> ring(12);
        unsigned random = 1;
        for (int round = 0; round < 20000; ++round) {
          random = random * 1103515245 + 12345;
          ze_context_handle_t& one = ring[(random >> 16) % ring.size()];
          if (one != nullptr) OK(destroy(one));
          one = one != nullptr ? nullptr : make_context((random >> 20) % 2 == 0 ? drivers.gpu : drivers.npu);
        }
        for (ze_context_handle_t one : ring) {
          if (one != nullptr) OK(destroy(one));
        }
        --busy;
      });
    }
    int lost = 0;
    while (busy > 0) {
      for (ze_context_handle_t context : kept) lost += status(context) == ZE_RESULT_SUCCESS ? 0 : 1;
    }
    CHECK(lost == 0);
    for (std::thread& thread : threads) thread.join();
  });
}

TEST(one_of_several_threads_destroys) {
  check::in_child([] {
    const Pair drivers = heap_drivers();
    for (int round = 0; round < 50; ++round) {
      ze_context_handle_t context = make_context(drivers.gpu);
      std::atomic<int> succeeded{0};
      std::vector<std::thread> threads;
      for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] { succeeded += destroy(context) == ZE_RESULT_SUCCESS ? 1 : 0; });
      }
      for (std::thread& thread : threads) thread.join();
      CHECK(succeeded == 1);
    }
  });
}

// The child finds the map whole, whatever its parent's threads were doing to it.
TEST(forks_while_threads_make_and_destroy) {
  check::in_child([] {
    static const Pair drivers = heap_drivers();
    static ze_context_handle_t const kept = make_context(drivers.gpu);
    static std::atomic<bool> over{false};
    std::thread busy([] {
      while (!over) churn(drivers, 10);
    });
    for (int i = 0; i < 100; ++i) {
      check::in_child([] {
        OK(init());
        OK(status(kept));
        churn(drivers, 10);
        check::leave_child();
      });
    }
    over = true;
    busy.join();
  });
}

// The thread that initializes is not in the child, and nor is what it holds.
TEST(forks_during_an_init) {
  check::in_child([] {
    use_drivers(path_of("L0PY_TEST_SLOW_DRIVER"), path_of("L0PY_TEST_NPU_DRIVER"));
    uint32_t count = 0;
    CHECK_RESULT(LOADER(ze_pfnDriverGet_t, zeDriverGet)(&count, nullptr), ERROR_UNINITIALIZED);
    std::thread slow([] { OK(init()); });
    while (dlopen(path_of("L0PY_TEST_SLOW_DRIVER"), RTLD_NOW | RTLD_NOLOAD) == nullptr) check::sleep_ms(1);
    check::sleep_ms(200);
    check::in_child([] {
      OK(init());
      uint32_t count = 0;
      OK(LOADER(ze_pfnDriverGet_t, zeDriverGet)(&count, nullptr));
      CHECK(count == 2);
      check::leave_child();
    });
    slow.join();
  });
}

// The software driver, whose destroying can be made to fail, beside another one.
TEST(what_was_not_destroyed_is_still_known) {
  check::in_child([] {
    use_drivers(path_of("L0PY_TEST_DRIVER"), path_of("L0PY_TEST_OLD_DRIVER"));
    uint32_t count = 1;
    ze_driver_handle_t driver = nullptr;
    OK(init_drivers(UINT32_MAX, &count, &driver));
    ze_context_handle_t context = make_context(driver);
    CHECK(l0sd.inject("zeContextDestroy", 0, ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, 1) == 0);
    CHECK_RESULT(destroy(context), ERROR_HANDLE_OBJECT_IN_USE);
    OK(status(context));
    OK(destroy(context));
    CHECK_RESULT(status(context), ERROR_INVALID_ARGUMENT);
  });
}

// The default driver is the first; neither has the functions of 1.14.
TEST(functions_of_the_default_driver) {
  check::in_child([] {
    const Pair drivers = heap_drivers();
    const char* text = nullptr;
    CHECK_RESULT(LOADER(zer_pfnGetLastErrorDescription_t, zerGetLastErrorDescription)(&text),
                 ERROR_UNSUPPORTED_FEATURE);
    CHECK(LOADER(zer_pfnGetDefaultContext_t, zerGetDefaultContext)() == nullptr);
    CHECK(LOADER(zer_pfnTranslateIdentifierToDeviceHandle_t, zerTranslateIdentifierToDeviceHandle)(0) == nullptr);
    const auto number = LOADER(zer_pfnTranslateDeviceHandleToIdentifier_t, zerTranslateDeviceHandleToIdentifier);
    CHECK(number(device_of(drivers.gpu)) == UINT32_MAX && number(device_of(drivers.npu)) == UINT32_MAX);
    CHECK(LOADER(ze_pfnDriverGetDefaultContext_t, zeDriverGetDefaultContext)(drivers.npu) == nullptr);
  });
}
