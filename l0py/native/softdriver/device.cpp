#include "device.hpp"

#include <chrono>

#include "behaviour.hpp"
#include "memory.hpp"
#include "properties.hpp"
#include "softdriver_functions.hpp"
#include "text.hpp"

namespace softdriver {
namespace {

constexpr uint32_t intel_vendor_id = 0x8086;

}  // namespace

uint64_t device_memory_size() noexcept {
  static const uint64_t bytes = physical_memory() / page_size * page_size;
  return bytes;
}

uint64_t device_ticks() noexcept {
  using namespace std::chrono;
  return static_cast<uint64_t>(duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count());
}

void tell_device(ze_device_properties_t* properties, ze_device_properties_t own, const ze_device_luid_ext_t& luid) {
  auto& out = require(properties, "pDeviceProperties");
  // The timer's unit hangs on which of the two the caller knows: nanoseconds per tick, or ticks per second.
  const bool ticks = out.stype == ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2;
  if (!ticks) {
    require_stype(out.stype, ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES, "pDeviceProperties");
  }
  own.vendorId = intel_vendor_id;
  own.flags = ZE_DEVICE_PROPERTY_FLAG_INTEGRATED;
  own.maxMemAllocSize = max_allocation_size();
  own.timerResolution = ticks ? device_ticks_per_second : 1'000'000'000 / device_ticks_per_second;
  own.timestampValidBits = 64;
  own.kernelTimestampValidBits = 64;
  fill(out, own);
  if (auto* told =
          find_next<ze_device_luid_ext_properties_t>(out.pNext, ZE_STRUCTURE_TYPE_DEVICE_LUID_EXT_PROPERTIES)) {
    told->luid = luid;
    told->nodeMask = 1;
  }
}

ze_result_t api::zeDeviceGet(ze_driver_handle_t hDriver, uint32_t* pCount, ze_device_handle_t* phDevices) {
  find<Driver>(hDriver);
  if (entries_to_fill(pCount, phDevices, 1) == 1) {
    phDevices[0] = static_cast<ze_device_handle_t>(the_device().handle());
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeDeviceGetRootDevice(ze_device_handle_t hDevice, ze_device_handle_t* phRootDevice) {
  find<Device>(hDevice);
  require(phRootDevice, "phRootDevice") = nullptr;  // it is the root
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeDeviceGetSubDevices(ze_device_handle_t hDevice, uint32_t* pCount, ze_device_handle_t*) {
  find<Device>(hDevice);
  require(pCount, "pCount") = 0;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeDeviceGetCommandQueueGroupProperties(
    ze_device_handle_t hDevice, uint32_t* pCount, ze_command_queue_group_properties_t* pCommandQueueGroupProperties) {
  find<Device>(hDevice);
  const uint32_t entries = entries_to_fill(pCount, pCommandQueueGroupProperties, identity.queue_group_count);
  for (uint32_t i = 0; i < entries; ++i) {
    auto& properties = checked(pCommandQueueGroupProperties + i, ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES,
                               "pCommandQueueGroupProperties");
    properties.flags = identity.queue_groups[i].flags;
    properties.maxMemoryFillPatternSize = identity.queue_groups[i].max_fill_pattern;
    properties.numQueues = 1;
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeDeviceGetMemoryProperties(ze_device_handle_t hDevice, uint32_t* pCount,
                                             ze_device_memory_properties_t* pMemProperties) {
  find<Device>(hDevice);
  if (entries_to_fill(pCount, pMemProperties, memory_count) == 1) {
    auto& properties = checked(pMemProperties, ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES, "pMemProperties");
    ze_device_memory_properties_t values{};
    values.totalSize = device_memory_size();
    copy_text(values.name, "DDR");
    fill(properties, values);
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeDeviceGetModuleProperties(ze_device_handle_t hDevice,
                                             ze_device_module_properties_t* pModuleProperties) {
  find<Device>(hDevice);
  auto& properties = checked(pModuleProperties, ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES, "pModuleProperties");
  fill(properties, {});  // no modules
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeDeviceGetP2PProperties(ze_device_handle_t hDevice, ze_device_handle_t hPeerDevice,
                                          ze_device_p2p_properties_t* pP2PProperties) {
  find<Device>(hDevice);
  find<Device>(hPeerDevice);
  checked(pP2PProperties, ZE_STRUCTURE_TYPE_DEVICE_P2P_PROPERTIES, "pP2PProperties").flags = 0;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeDeviceGetStatus(ze_device_handle_t hDevice) {
  if (!behaviour().device_status) {
    throw Failure(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "the driver does not tell a device's status");
  }
  find<Device>(hDevice);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeDeviceGetGlobalTimestamps(ze_device_handle_t hDevice, uint64_t* hostTimestamp,
                                             uint64_t* deviceTimestamp) {
  find<Device>(hDevice);
  uint64_t& host = require(hostTimestamp, "hostTimestamp");
  uint64_t& device = require(deviceTimestamp, "deviceTimestamp");
  host = device = device_ticks();  // the device keeps the host's time
  return ZE_RESULT_SUCCESS;
}

}  // namespace softdriver
