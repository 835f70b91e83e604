// Calls that are told to fail.
#include <cstring>

#include "check.hpp"

using check::npu;

namespace {

ze_result_t call() {
  ze_api_version_t version{};
  return l0.ze_driver.pfnGetApiVersion(npu().driver, &version);
}

}  // namespace

TEST(some_calls_in_the_middle) {
  OK(call());
  OK(l0sd.inject("zeDriverGetApiVersion", 1, ZE_RESULT_ERROR_DEVICE_LOST, 2));
  OK(call());
  CHECK_RESULT(call(), ERROR_DEVICE_LOST);
  CHECK_RESULT(call(), ERROR_DEVICE_LOST);
  const char* text = nullptr;
  OK(l0.ze_driver.pfnGetLastErrorDescription(npu().driver, &text));
  CHECK(std::strcmp(text, "injected fault") == 0);
  OK(call());
}

TEST(for_ever_and_until_cleared) {
  OK(l0sd.inject("zeDriverGetApiVersion", 0, ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, 0));
  for (int i = 0; i < 10; ++i) {
    CHECK_RESULT(call(), ERROR_OUT_OF_HOST_MEMORY);
  }
  l0sd.clear_faults();
  OK(call());
}

TEST(several_at_once_count_for_themselves) {
  OK(l0sd.inject("zeDriverGetApiVersion", 0, ZE_RESULT_ERROR_DEVICE_LOST, 1));
  OK(l0sd.inject("zeDriverGetApiVersion", 2, ZE_RESULT_ERROR_UNKNOWN, 1));
  OK(l0sd.inject("zeContextCreate", 0, ZE_RESULT_ERROR_NOT_AVAILABLE, 1));
  CHECK_RESULT(call(), ERROR_DEVICE_LOST);
  OK(call());
  CHECK_RESULT(call(), ERROR_UNKNOWN);
  OK(call());
  const ze_context_desc_t desc{ZE_STRUCTURE_TYPE_CONTEXT_DESC, nullptr, 0};
  ze_context_handle_t context = nullptr;
  CHECK_RESULT(l0.ze_context.pfnCreate(npu().driver, &desc, &context), ERROR_NOT_AVAILABLE);
  CHECK(context == nullptr);
}

TEST(functions_that_do_nothing_else_and_extension_slots) {
  OK(l0sd.inject("zeContextSystemBarrier", 0, ZE_RESULT_ERROR_DEVICE_LOST, 1));
  CHECK_RESULT(l0.ze_context.pfnSystemBarrier(nullptr, nullptr), ERROR_DEVICE_LOST);
  CHECK_RESULT(l0.ze_context.pfnSystemBarrier(nullptr, nullptr), ERROR_UNSUPPORTED_FEATURE);
  OK(l0sd.inject("context_pfnReleaseMemory", 0, ZE_RESULT_ERROR_DEVICE_LOST, 1));
  const auto& table = check::extension<ze_context_npu_dditable_ext_t>("ZE_extension_context_npu");
  CHECK_RESULT(table.pfnReleaseMemory(nullptr), ERROR_DEVICE_LOST);
}

TEST(functions_that_are_not_there) {
  for (const char* name : {"", "zeNope", "zememfree", "count_of_functions"}) {
    CHECK_RESULT(l0sd.inject(name, 0, ZE_RESULT_ERROR_UNKNOWN, 1), ERROR_INVALID_ARGUMENT);
  }
  CHECK_RESULT(l0sd.inject(nullptr, 0, ZE_RESULT_ERROR_UNKNOWN, 1), ERROR_INVALID_NULL_POINTER);
}

TEST(a_failed_free_keeps_the_memory) {
  const auto context = check::make_context();
  char* memory = check::make_memory(context, 1);
  OK(l0sd.inject("zeMemFree", 0, ZE_RESULT_ERROR_DEVICE_LOST, 1));
  CHECK_RESULT(l0.ze_mem.pfnFree(context, memory), ERROR_DEVICE_LOST);
  memory[0] = 1;
  OK(l0.ze_mem.pfnFree(context, memory));
  check::destroy(context);
}
