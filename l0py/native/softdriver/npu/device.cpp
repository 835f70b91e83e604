// The software NPU, as programs see it.
#include "device.hpp"
#include "behaviour.hpp"
#include "properties.hpp"
#include "softdriver_functions.hpp"
#include "text.hpp"

namespace softdriver {
namespace {

// Lunar Lake's NPU, as far as programs go by numbers; the name says what it really is.
constexpr char device_name[] = "l0py software NPU";
constexpr uint32_t lunar_lake_npu_id = 0x643e;
constexpr ze_device_uuid_t device_uuid{
    {0x80, 0xd1, 0xd1, 0x1e, 0xb7, 0x38, 0x11, 0xea, 0xb3, 0xde, 0x02, 0x42, 0xac, 0x13, 0x00, 0x04}};
constexpr ze_device_luid_ext_t device_luid{{'l', '0', 'p', 'y', '-', 'n', 'p', 'u'}};
constexpr uint32_t clock_hertz = 1'950'000'000;  // NPU drivers give hertz, not the specification's megahertz
constexpr uint32_t tiles = 6;
constexpr uint32_t operations_per_tile = 4096;

}  // namespace

ze_result_t api::zeDeviceGetProperties(ze_device_handle_t hDevice, ze_device_properties_t* pDeviceProperties) {
  find<Device>(hDevice);
  ze_device_properties_t values{};
  values.type = ZE_DEVICE_TYPE_VPU;
  values.deviceId = lunar_lake_npu_id;
  values.coreClockRate = clock_hertz;
  values.maxHardwareContexts = 128;
  values.maxCommandQueuePriority = ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH;
  values.numThreadsPerEU = 1;
  values.physicalEUSimdWidth = operations_per_tile;
  values.numEUsPerSubslice = 1;
  values.numSubslicesPerSlice = 1;
  values.numSlices = tiles;
  values.uuid = device_uuid;
  copy_text(values.name, device_name);
  tell_device(pDeviceProperties, values, device_luid);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeDeviceGetComputeProperties(ze_device_handle_t hDevice,
                                              ze_device_compute_properties_t* pComputeProperties) {
  find<Device>(hDevice);
  auto& properties = checked(pComputeProperties, ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES, "pComputeProperties");
  ze_device_compute_properties_t values{};  // it runs graphs, not kernels: groups of one
  values.maxTotalGroupSize = 1;
  values.maxGroupSizeX = values.maxGroupSizeY = values.maxGroupSizeZ = 1;
  values.maxGroupCountX = values.maxGroupCountY = values.maxGroupCountZ = 1;
  fill(properties, values);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeDeviceGetMemoryAccessProperties(ze_device_handle_t hDevice,
                                                   ze_device_memory_access_properties_t* pMemAccessProperties) {
  find<Device>(hDevice);
  auto& properties =
      checked(pMemAccessProperties, ZE_STRUCTURE_TYPE_DEVICE_MEMORY_ACCESS_PROPERTIES, "pMemAccessProperties");
  properties.hostAllocCapabilities = ZE_MEMORY_ACCESS_CAP_FLAG_RW;
  properties.deviceAllocCapabilities = ZE_MEMORY_ACCESS_CAP_FLAG_RW;
  properties.sharedSingleDeviceAllocCapabilities = ZE_MEMORY_ACCESS_CAP_FLAG_RW;
  properties.sharedCrossDeviceAllocCapabilities = 0;
  properties.sharedSystemAllocCapabilities = 0;  // the host's pages have to be imported
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeDeviceGetCacheProperties(ze_device_handle_t hDevice, uint32_t* pCount,
                                            ze_device_cache_properties_t*) {
  find<Device>(hDevice);
  require(pCount, "pCount") = 0;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeDeviceGetImageProperties(ze_device_handle_t hDevice,
                                            ze_device_image_properties_t* pImageProperties) {
  find<Device>(hDevice);
  auto& properties = checked(pImageProperties, ZE_STRUCTURE_TYPE_DEVICE_IMAGE_PROPERTIES, "pImageProperties");
  fill(properties, {});  // no images
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeDeviceGetExternalMemoryProperties(
    ze_device_handle_t hDevice, ze_device_external_memory_properties_t* pExternalMemoryProperties) {
  find<Device>(hDevice);
  auto& properties = checked(pExternalMemoryProperties, ZE_STRUCTURE_TYPE_DEVICE_EXTERNAL_MEMORY_PROPERTIES,
                             "pExternalMemoryProperties");
  properties.memoryAllocationImportTypes = behaviour().import_types | ZE_EXTERNAL_MEMORY_TYPE_FLAG_STANDARD_ALLOCATION;
  properties.memoryAllocationExportTypes = behaviour().export_types;
  properties.imageImportTypes = 0;
  properties.imageExportTypes = 0;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeDevicePciGetPropertiesExt(ze_device_handle_t hDevice, ze_pci_ext_properties_t* pPciProperties) {
  find<Device>(hDevice);
  auto& properties = checked(pPciProperties, ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES, "pPciProperties");
  properties.address = {0, 0, 0xb, 0};  // where that NPU sits in every machine that has one
  properties.maxSpeed = {-1, -1, -1};   // unknown
  return ZE_RESULT_SUCCESS;
}

}  // namespace softdriver
