// What the device says about itself.
#include <cstring>

#include "check.hpp"

using check::npu;

namespace {

template <class T>
T empty(ze_structure_type_t stype) {
  T properties{};
  properties.stype = stype;
  return properties;
}

}  // namespace

TEST(one_device) {
  uint32_t count = 0;
  OK(l0.ze_device.pfnGet(npu().driver, &count, nullptr));
  CHECK(count == 1);
  ze_device_handle_t devices[2] = {};
  count = 2;
  OK(l0.ze_device.pfnGet(npu().driver, &count, devices));
  CHECK(count == 1 && devices[0] == npu().device && devices[1] == nullptr);
  CHECK_RESULT(l0.ze_device.pfnGet(npu().driver, nullptr, devices), ERROR_INVALID_NULL_POINTER);
  OK(l0.ze_device.pfnGetSubDevices(npu().device, &count, nullptr));
  CHECK(count == 0);
  OK(l0.ze_device.pfnGetStatus(npu().device));
}

TEST(device_properties) {
  auto luid = empty<ze_device_luid_ext_properties_t>(ZE_STRUCTURE_TYPE_DEVICE_LUID_EXT_PROPERTIES);
  auto properties = empty<ze_device_properties_t>(ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES);
  properties.pNext = &luid;
  OK(l0.ze_device.pfnGetProperties(npu().device, &properties));
  CHECK(properties.stype == ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES && properties.pNext == &luid);
  CHECK(properties.type == ZE_DEVICE_TYPE_VPU && properties.vendorId == 0x8086);
  CHECK(properties.maxMemAllocSize > 0 && properties.maxMemAllocSize % 4096 == 0);
  CHECK(std::strstr(properties.name, "software") != nullptr);
  CHECK(luid.nodeMask == 1);

  auto newer = empty<ze_device_properties_t>(ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2);
  OK(l0.ze_device.pfnGetProperties(npu().device, &newer));
  CHECK(properties.timerResolution == 1 && newer.timerResolution == 1'000'000'000);

  properties.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC;
  CHECK_RESULT(l0.ze_device.pfnGetProperties(npu().device, &properties), ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(l0.ze_device.pfnGetProperties(npu().device, nullptr), ERROR_INVALID_NULL_POINTER);
}

TEST(a_chain_that_bites_its_tail) {
  ze_base_desc_t link{static_cast<ze_structure_type_t>(0x999), nullptr};
  link.pNext = &link;
  auto properties = empty<ze_device_properties_t>(ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES);
  properties.pNext = &link;
  OK(l0.ze_device.pfnGetProperties(npu().device, &properties));
}

TEST(lists_of_properties) {
  uint32_t count = 3;
  ze_command_queue_group_properties_t groups[3] = {};
  for (auto& group : groups) {
    group.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES;
  }
  auto get = l0.ze_device.pfnGetCommandQueueGroupProperties;
  OK(get(npu().device, &count, groups));
  CHECK(count == 1 && groups[0].flags == 3 && groups[0].maxMemoryFillPatternSize == 4 && groups[1].flags == 0);
  CHECK_RESULT(get(npu().device, nullptr, groups), ERROR_INVALID_NULL_POINTER);
  groups[0].stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC;
  CHECK_RESULT(get(npu().device, &count, groups), ERROR_INVALID_ARGUMENT);

  ze_device_memory_properties_t memories[2] = {};
  memories[0].stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES;
  count = 2;
  OK(l0.ze_device.pfnGetMemoryProperties(npu().device, &count, memories));
  CHECK(count == 1 && memories[0].totalSize > 0);
  count = 5;
  OK(l0.ze_device.pfnGetCacheProperties(npu().device, &count, nullptr));
  CHECK(count == 0);
}

TEST(other_properties) {
  auto external = empty<ze_device_external_memory_properties_t>(ZE_STRUCTURE_TYPE_DEVICE_EXTERNAL_MEMORY_PROPERTIES);
  OK(l0.ze_device.pfnGetExternalMemoryProperties(npu().device, &external));
#ifdef _WIN32
  constexpr auto handles = ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_WIN32;
#else
  constexpr auto handles = ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF;
#endif
  CHECK(external.memoryAllocationExportTypes == handles);
  CHECK((external.memoryAllocationImportTypes & handles) != 0);
  auto compute = empty<ze_device_compute_properties_t>(ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES);
  OK(l0.ze_device.pfnGetComputeProperties(npu().device, &compute));
  CHECK(compute.maxTotalGroupSize == 1);
  auto access = empty<ze_device_memory_access_properties_t>(ZE_STRUCTURE_TYPE_DEVICE_MEMORY_ACCESS_PROPERTIES);
  OK(l0.ze_device.pfnGetMemoryAccessProperties(npu().device, &access));
  CHECK(access.hostAllocCapabilities == ZE_MEMORY_ACCESS_CAP_FLAG_RW && access.sharedSystemAllocCapabilities == 0);
  auto pci = empty<ze_pci_ext_properties_t>(ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES);
  OK(l0.ze_device.pfnPciGetPropertiesExt(npu().device, &pci));
  CHECK(pci.address.device == 11);
}

TEST(the_clock_runs) {
  uint64_t host[2] = {}, device[2] = {};
  OK(l0.ze_device.pfnGetGlobalTimestamps(npu().device, &host[0], &device[0]));
  check::sleep_ms(2);
  OK(l0.ze_device.pfnGetGlobalTimestamps(npu().device, &host[1], &device[1]));
  CHECK(device[1] - device[0] >= 1'000'000 && host[1] - host[0] == device[1] - device[0]);
  CHECK_RESULT(l0.ze_device.pfnGetGlobalTimestamps(npu().device, nullptr, &device[0]), ERROR_INVALID_NULL_POINTER);
}
