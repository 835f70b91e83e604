// The embedded loader, each case in a process of its own: without a driver, with drivers that refuse, with ours.
// Several drivers that answer are in test_several_drivers.cpp.
#include <thread>
#include <vector>

#include "loader_calls.hpp"

namespace {

// Every function that needs a driver, of which two stand for all.
void nothing_is_initialized() {
  uint32_t count = 0;
  CHECK_RESULT(LOADER(ze_pfnDriverGet_t, zeDriverGet)(&count, nullptr), ERROR_UNINITIALIZED);
  CHECK_RESULT(LOADER(ze_pfnMemFree_t, zeMemFree)(nullptr, nullptr), ERROR_UNINITIALIZED);
}

}  // namespace

TEST(no_driver_at_all) {
  check::in_child([] {
    use_drivers("/nowhere/libze_none.so", ",,");
    nothing_is_initialized();
    uint32_t count = 0;
    for (int i = 0; i < 3; ++i) {
      CHECK_RESULT(init(), ERROR_UNINITIALIZED);
      CHECK_RESULT(init_drivers(UINT32_MAX, &count, nullptr), ERROR_UNINITIALIZED);
      nothing_is_initialized();
    }
  });
}

TEST(a_library_that_is_no_driver_and_the_loader_itself) {
  check::in_child([] {
    use_drivers("libm.so.6", path_of("L0PY_TEST_LOADER"));
    CHECK_RESULT(init(), ERROR_UNINITIALIZED);
    nothing_is_initialized();
  });
}

TEST(a_driver_without_init_drivers) {
  check::in_child([] {
    use_drivers(path_of("L0PY_TEST_OLD_DRIVER"));
    uint32_t count = 0;
    OK(init_drivers(ZE_INIT_DRIVER_TYPE_FLAG_GPU, &count, nullptr));
    CHECK(count == 1);
    ze_driver_handle_t driver = nullptr;
    OK(init_drivers(ZE_INIT_DRIVER_TYPE_FLAG_GPU, &count, &driver));
    CHECK(driver != nullptr);
    CHECK_RESULT(init_drivers(ZE_INIT_DRIVER_TYPE_FLAG_NPU, &count, &driver), ERROR_UNINITIALIZED);
    CHECK_RESULT(LOADER(ze_pfnMemFree_t, zeMemFree)(nullptr, nullptr), ERROR_UNSUPPORTED_FEATURE);
  });
}

// Some drivers crash when they are called after a failed init: the first answer is the last.
TEST(a_driver_that_fails_is_never_called_again) {
  check::in_child([] {
    const char* driver = path_of("L0PY_TEST_FAILING_DRIVER");
    use_drivers(driver);
    CHECK_RESULT(init(), ERROR_DEVICE_LOST);
    const int inits = inits_of(driver);
    CHECK(inits == 1);
    uint32_t count = 3;
    CHECK_RESULT(init(), ERROR_DEVICE_LOST);
    CHECK_RESULT(init_drivers(UINT32_MAX, &count, nullptr), ERROR_DEVICE_LOST);
    CHECK(count == 3 && inits_of(driver) == inits);
    nothing_is_initialized();
  });
}

TEST(the_next_driver_after_one_that_fails) {
  check::in_child([] {
    use_drivers(path_of("L0PY_TEST_FAILING_DRIVER"), path_of("L0PY_TEST_DRIVER"));
    uint32_t count = 1;
    ze_driver_handle_t driver = nullptr;
    OK(init_drivers(ZE_INIT_DRIVER_TYPE_FLAG_NPU, &count, &driver));
    ze_api_version_t version{};
    OK(LOADER(ze_pfnDriverGetApiVersion_t, zeDriverGetApiVersion)(driver, &version));
    CHECK(version == ZE_API_VERSION_1_13);
  });
}

TEST(bad_arguments) {
  check::in_child([] {
    use_drivers(path_of("L0PY_TEST_DRIVER"));
    uint32_t count = 0;
    CHECK_RESULT(LOADER(ze_pfnInitDrivers_t, zeInitDrivers)(&count, nullptr, nullptr), ERROR_INVALID_NULL_POINTER);
    CHECK_RESULT(init_drivers(0, &count, nullptr), ERROR_INVALID_ENUMERATION);
    nothing_is_initialized();
  });
}

// Four threads initialize and call at once; the queue is left alive when the process exits.
TEST(the_software_driver_through_the_loader) {
  check::in_child([] {
    use_drivers(path_of("L0PY_TEST_DRIVER"));
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([] {
        OK(init(ZE_INIT_FLAG_VPU_ONLY));
        uint32_t count = 1;
        ze_driver_handle_t driver = nullptr;
        ze_device_handle_t device = nullptr;
        OK(LOADER(ze_pfnDriverGet_t, zeDriverGet)(&count, &driver));
        OK(LOADER(ze_pfnDeviceGet_t, zeDeviceGet)(driver, &count, &device));
        const ze_context_desc_t context_desc{ZE_STRUCTURE_TYPE_CONTEXT_DESC, nullptr, 0};
        const ze_command_queue_desc_t queue_desc = check::queue_desc();
        ze_context_handle_t context = nullptr;
        ze_command_queue_handle_t queue = nullptr;
        OK(LOADER(ze_pfnContextCreate_t, zeContextCreate)(driver, &context_desc, &context));
        OK(LOADER(ze_pfnCommandQueueCreate_t, zeCommandQueueCreate)(context, device, &queue_desc, &queue));
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  });
}

TEST(a_driver_that_goes_away) {
  check::in_child([] {
    use_drivers(path_of("L0PY_TEST_DRIVER"));
    OK(init());
    auto over = loader_function<bool (*)()>("zelCheckIsLoaderInTearDown");
    CHECK(!over());
    OK(loader_function<ze_result_t (*)()>("zelSetDriverTeardown")());
    CHECK(over());
    nothing_is_initialized();
    CHECK_RESULT(init(), ERROR_UNINITIALIZED);
  });
}
