// Contexts and what dies with them.
#include "check.hpp"

using check::npu;

TEST(create_and_destroy) {
  ze_context_desc_t desc{ZE_STRUCTURE_TYPE_CONTEXT_DESC, nullptr, ZE_CONTEXT_FLAG_TBD};
  ze_context_handle_t context = nullptr;
  OK(l0.ze_context.pfnCreate(npu().driver, &desc, &context));
  OK(l0.ze_context.pfnGetStatus(context));
  check::destroy(context);
  CHECK_RESULT(l0.ze_context.pfnGetStatus(context), ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(l0.ze_context.pfnDestroy(context), ERROR_INVALID_ARGUMENT);
}

TEST(bad_arguments) {
  ze_context_desc_t desc{ZE_STRUCTURE_TYPE_CONTEXT_DESC, nullptr, 0};
  ze_context_handle_t context = nullptr;
  auto create = l0.ze_context.pfnCreate;
  CHECK_RESULT(create(nullptr, &desc, &context), ERROR_INVALID_NULL_HANDLE);
  CHECK_RESULT(create(npu().driver, nullptr, &context), ERROR_INVALID_NULL_POINTER);
  CHECK_RESULT(create(npu().driver, &desc, nullptr), ERROR_INVALID_NULL_POINTER);
  desc.flags = 0x10;
  CHECK_RESULT(create(npu().driver, &desc, &context), ERROR_INVALID_ENUMERATION);
  desc = {ZE_STRUCTURE_TYPE_FENCE_DESC, nullptr, 0};
  CHECK_RESULT(create(npu().driver, &desc, &context), ERROR_INVALID_ARGUMENT);
  CHECK(context == nullptr);
  CHECK_RESULT(l0.ze_context.pfnCreateEx(npu().driver, &desc, 0, nullptr, &context), ERROR_UNSUPPORTED_FEATURE);
}

TEST(npu_properties) {
  const auto& table = check::extension<ze_context_npu_dditable_ext_t>("ZE_extension_context_npu");
  const ze_context_handle_t context = check::make_context();
  ze_context_properties_npu_ext_t properties{ZE_STRUCTURE_TYPE_CONTEXT_PROPERTIES_NPU_EXT, nullptr,
                                             ZE_NPU_CONTEXT_OPTION_IDLE_OPTIMIZATIONS};
  OK(table.pfnSetProperties(context, &properties));
  properties.options = 2;
  CHECK_RESULT(table.pfnSetProperties(context, &properties), ERROR_INVALID_ENUMERATION);
  CHECK_RESULT(table.pfnSetProperties(context, nullptr), ERROR_INVALID_NULL_POINTER);
  OK(table.pfnReleaseMemory(context));
  CHECK_RESULT(table.pfnReleaseMemory(nullptr), ERROR_INVALID_NULL_HANDLE);
  check::destroy(context);
}

TEST(memory_dies_with_its_context) {
  const ze_context_handle_t context = check::make_context();
  char* memory = check::make_memory(context, 5000);
  check::make_memory(context, 1);
  check::destroy(context);
  CHECK_RESULT(l0.ze_mem.pfnFree(context, memory), ERROR_INVALID_ARGUMENT);
}

TEST(queues_and_lists_outlive_their_context) {
  const ze_context_handle_t context = check::make_context();
  const auto queue = check::make_queue(context);
  const auto list = check::make_list(context);
  const auto fence = check::make_fence(queue);
  check::destroy(context);
  OK(l0.ze_command_list.pfnAppendBarrier(list, nullptr, 0, nullptr));
  OK(l0.ze_command_list.pfnClose(list));
  OK(check::execute(queue, list, fence));
  OK(l0.ze_fence.pfnHostSynchronize(fence, check::ever));
  check::destroy(fence, list, queue);
}
