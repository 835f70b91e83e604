// The GPU's driver as programs see it: its device, what it has and what it has not.
#include <cstring>
#include <string>
#include <vector>

#include "gpu_memory.hpp"

using namespace check;

TEST(the_device) {
  ze_device_properties_t properties{};
  properties.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES;
  OK(l0.ze_device.pfnGetProperties(gpu().device, &properties));
  CHECK(properties.type == ZE_DEVICE_TYPE_GPU && properties.vendorId == 0x8086);
  CHECK((properties.flags & ZE_DEVICE_PROPERTY_FLAG_INTEGRATED) != 0);
  CHECK(std::string(properties.name) == "l0py software GPU");
  ze_device_image_properties_t images{};
  images.stype = ZE_STRUCTURE_TYPE_DEVICE_IMAGE_PROPERTIES;
  OK(l0.ze_device.pfnGetImageProperties(gpu().device, &images));
  CHECK(images.maxImageDims2D == 16384 && images.maxSamplers == 0);
  uint32_t count = 0;
  OK(l0.ze_device.pfnGetCacheProperties(gpu().device, &count, nullptr));
  CHECK(count == 1);
  ze_device_p2p_properties_t peer{};
  peer.stype = ZE_STRUCTURE_TYPE_DEVICE_P2P_PROPERTIES;
  OK(l0.ze_device.pfnGetP2PProperties(gpu().device, gpu().device, &peer));
  CHECK(peer.flags == 0);
}

TEST(an_init_for_npus_is_not_for_it) {
  CHECK_RESULT(l0.ze_global.pfnInit(ZE_INIT_FLAG_VPU_ONLY), ERROR_UNINITIALIZED);
  OK(l0.ze_global.pfnInit(ZE_INIT_FLAG_GPU_ONLY));
  ze_init_driver_type_desc_t desc{ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC, nullptr, ZE_INIT_DRIVER_TYPE_FLAG_NPU};
  uint32_t count = 0;
  CHECK_RESULT(l0.ze_global.pfnInitDrivers(&count, nullptr, &desc), ERROR_UNINITIALIZED);
}

TEST(extensions) {
  uint32_t count = 0;
  OK(l0.ze_driver.pfnGetExtensionProperties(gpu().driver, &count, nullptr));
  std::vector<ze_driver_extension_properties_t> all(count);
  OK(l0.ze_driver.pfnGetExtensionProperties(gpu().driver, &count, all.data()));
  for (const auto& extension : all) {
    CHECK(std::strstr(extension.name, "npu") == nullptr && std::strstr(extension.name, "graph") == nullptr);
  }
  void* address = nullptr;
  auto find = l0.ze_driver.pfnGetExtensionFunctionAddress;
  CHECK_RESULT(find(gpu().driver, "ZE_extension_graph", &address), ERROR_INVALID_ARGUMENT);
  OK(find(gpu().driver, "zeMemAllocHost", &address));
  CHECK(address != nullptr);
}

TEST(there_are_no_kernels) {
  const auto context = make_context();
  ze_module_desc_t module{};
  module.stype = ZE_STRUCTURE_TYPE_MODULE_DESC;
  ze_module_handle_t made = nullptr;
  CHECK_RESULT(l0.ze_module.pfnCreate(context, gpu().device, &module, &made, nullptr), ERROR_UNSUPPORTED_FEATURE);
  ze_sampler_desc_t sampler{};
  sampler.stype = ZE_STRUCTURE_TYPE_SAMPLER_DESC;
  ze_sampler_handle_t sampled = nullptr;
  CHECK_RESULT(l0.ze_sampler.pfnCreate(context, gpu().device, &sampler, &sampled), ERROR_UNSUPPORTED_FEATURE);
  destroy(context);
}

TEST(queue_groups) {
  uint32_t count = 2;
  ze_command_queue_group_properties_t groups[2] = {};
  groups[0].stype = groups[1].stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES;
  OK(l0.ze_device.pfnGetCommandQueueGroupProperties(gpu().device, &count, groups));
  CHECK(count == 2 && (groups[0].flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE) != 0);
  CHECK(groups[1].flags == ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY && groups[1].maxMemoryFillPatternSize == 16);
  const auto context = make_context();
  char* memory = make_kind(context, ZE_MEMORY_TYPE_DEVICE, 64);
  const char* pattern = "0123456789abcdef0123456789abcdef";
  for (uint32_t ordinal : {0U, 1U}) {
    auto desc = queue_desc(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
    desc.ordinal = ordinal;
    ze_command_list_handle_t list = nullptr;
    OK(l0.ze_command_list.pfnCreateImmediate(context, gpu().device, &desc, &list));
    const ze_result_t long_pattern =
        l0.ze_command_list.pfnAppendMemoryFill(list, memory, pattern, 32, 64, nullptr, 0, nullptr);
    CHECK(long_pattern == (ordinal == 0 ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_SIZE));
    OK(l0.ze_command_list.pfnAppendMemoryFill(list, memory, pattern, 16, 64, nullptr, 0, nullptr));
    CHECK(std::memcmp(memory + 48, pattern, 16) == 0);
    destroy(list);
  }
  free_memory(context, memory);
  destroy(context);
}

TEST(copies_with_memory_of_the_host_and_of_other_contexts) {
  const auto context = make_context();
  const auto other = make_context();
  const auto list = make_immediate(context, ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
  char* memory = make_kind(context, ZE_MEMORY_TYPE_DEVICE, 64);
  char* theirs = make_kind(other, ZE_MEMORY_TYPE_DEVICE, 64);
  const std::string text = "of the host's own memory";
  std::string back(text.size(), '?');
  OK(l0.ze_command_list.pfnAppendMemoryCopy(list, memory, text.data(), text.size(), nullptr, 0, nullptr));
  OK(l0.ze_command_list.pfnAppendMemoryCopy(list, back.data(), memory, text.size(), nullptr, 0, nullptr));
  CHECK(back == text);
  std::strcpy(theirs, "theirs");
  auto from_context = l0.ze_command_list.pfnAppendMemoryCopyFromContext;
  OK(from_context(list, memory, other, theirs, 7, nullptr, 0, nullptr));
  CHECK(std::strcmp(memory, "theirs") == 0);
  CHECK_RESULT(from_context(list, memory, context, theirs, 7, nullptr, 0, nullptr), ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(from_context(list, memory, other, theirs, 65, nullptr, 0, nullptr), ERROR_INVALID_ARGUMENT);
  free_memory(context, memory);
  free_memory(other, theirs);
  destroy(list);
  destroy(context, other);
}

TEST(copies_of_regions) {
  const auto context = make_context();
  const auto list = make_immediate(context, ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
  char* to = make_kind(context, ZE_MEMORY_TYPE_DEVICE, 64);
  const std::string from = "abcdefghijklmnop";  // four rows of four
  const ze_copy_region_t source{1, 1, 0, 2, 2, 0};
  const ze_copy_region_t target{0, 0, 0, 2, 2, 0};
  auto copy = l0.ze_command_list.pfnAppendMemoryCopyRegion;
  OK(copy(list, to, &target, 8, 0, from.data(), &source, 4, 0, nullptr, 0, nullptr));
  CHECK(std::string(to, 10) == std::string("fg\0\0\0\0\0\0jk", 10));
  const ze_copy_region_t larger{0, 0, 0, 3, 2, 0};
  CHECK_RESULT(copy(list, to, &larger, 8, 0, from.data(), &source, 4, 0, nullptr, 0, nullptr), ERROR_INVALID_ARGUMENT);
  const ze_copy_region_t below{0, 8, 0, 2, 2, 0};
  CHECK_RESULT(copy(list, to, &below, 8, 0, from.data(), &source, 4, 0, nullptr, 0, nullptr), ERROR_UNINITIALIZED);
  // As many bytes as a size_t cannot count: one would be left.
  const ze_copy_region_t endless{0, 0, 0, 2, 4, UINT32_MAX};
  CHECK_RESULT(copy(list, to, &endless, UINT32_MAX, UINT32_MAX, from.data(), &endless, UINT32_MAX, UINT32_MAX, nullptr,
                    0, nullptr),
               ERROR_INVALID_ARGUMENT);
  const size_t size = 64;
  const void* range = to;
  OK(l0.ze_command_list.pfnAppendMemoryRangesBarrier(list, 1, &size, &range, nullptr, 0, nullptr));
  OK(l0.ze_command_list.pfnAppendMemoryPrefetch(list, to, 64));
  OK(l0.ze_command_list.pfnAppendMemAdvise(list, gpu().device, to, 64, ZE_MEMORY_ADVICE_SET_READ_MOSTLY));
  free_memory(context, to);
  destroy(list);
  destroy(context);
}

TEST(when_a_command_ran) {
  ze_context_handle_t context = make_context();
  ze_command_list_handle_t list = make_immediate(context, ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
  const ze_event_pool_desc_t desc{ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, nullptr, ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP, 1};
  ze_event_pool_handle_t timed = nullptr, plain = make_pool(context, 1);
  OK(l0.ze_event_pool.pfnCreate(context, &desc, 0, nullptr, &timed));
  ze_event_handle_t event = make_event(timed, 0), untimed = make_event(plain, 0);
  char* memory = make_memory(context, 4096);
  const auto query = l0.ze_event.pfnQueryKernelTimestamp;
  ze_kernel_timestamp_result_t told{};
  CHECK_RESULT(query(event, &told), NOT_READY);
  CHECK_RESULT(query(event, nullptr), ERROR_INVALID_NULL_POINTER);
  uint64_t host = 0, before = 0, after = 0;
  OK(l0.ze_device.pfnGetGlobalTimestamps(gpu().device, &host, &before));
  OK(l0.ze_command_list.pfnAppendMemoryFill(list, memory, "x", 1, 4096, event, 0, nullptr));
  OK(l0.ze_device.pfnGetGlobalTimestamps(gpu().device, &host, &after));
  OK(query(event, &told));
  CHECK(before <= told.global.kernelStart && told.global.kernelStart <= told.global.kernelEnd);
  CHECK(told.global.kernelEnd <= after && told.context.kernelEnd == told.global.kernelEnd);
  OK(l0.ze_command_list.pfnAppendMemoryFill(list, memory, "x", 1, 4096, untimed, 0, nullptr));
  CHECK_RESULT(query(untimed, &told), ERROR_INVALID_ARGUMENT);
  OK(l0.ze_mem.pfnFree(context, memory));
  destroy(event, untimed, timed, plain, list, context);
}
