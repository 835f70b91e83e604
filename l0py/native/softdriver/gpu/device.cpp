// The software GPU, as programs see it.
#include "device.hpp"
#include "behaviour.hpp"
#include "image.hpp"
#include "properties.hpp"
#include "softdriver_functions.hpp"
#include "text.hpp"

namespace softdriver {
namespace {

// Lunar Lake's GPU, as far as programs go by numbers; the name says what it really is.
constexpr char device_name[] = "l0py software GPU";
constexpr uint32_t lunar_lake_gpu_id = 0x64a0;
constexpr ze_device_uuid_t device_uuid{
    {0x86, 0x80, 0xa0, 0x64, 0x04, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 'l', '0', 'p', 'y'}};
constexpr ze_device_luid_ext_t device_luid{{'l', '0', 'p', 'y', '-', 'g', 'p', 'u'}};
constexpr uint32_t clock_megahertz = 2050;
constexpr uint64_t cache_size = uint64_t{8} << 20;

}  // namespace

ze_result_t api::zeDeviceGetProperties(ze_device_handle_t hDevice, ze_device_properties_t* pDeviceProperties) {
  find<Device>(hDevice);
  ze_device_properties_t values{};
  values.type = ZE_DEVICE_TYPE_GPU;
  values.deviceId = lunar_lake_gpu_id;
  values.coreClockRate = clock_megahertz;
  values.maxHardwareContexts = 64 * 1024;
  values.maxCommandQueuePriority = ZE_COMMAND_QUEUE_PRIORITY_NORMAL;
  values.numThreadsPerEU = 8;
  values.physicalEUSimdWidth = 16;
  values.numEUsPerSubslice = 8;
  values.numSubslicesPerSlice = 4;
  values.numSlices = 2;
  values.uuid = device_uuid;
  copy_text(values.name, device_name);
  tell_device(pDeviceProperties, values, device_luid);
  return ZE_RESULT_SUCCESS;
}

// It has no kernels: these are what programs expect of such a GPU before they try to build one.
ze_result_t api::zeDeviceGetComputeProperties(ze_device_handle_t hDevice,
                                              ze_device_compute_properties_t* pComputeProperties) {
  find<Device>(hDevice);
  auto& properties = checked(pComputeProperties, ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES, "pComputeProperties");
  ze_device_compute_properties_t values{};
  values.maxTotalGroupSize = 1024;
  values.maxGroupSizeX = values.maxGroupSizeY = values.maxGroupSizeZ = 1024;
  values.maxGroupCountX = values.maxGroupCountY = values.maxGroupCountZ = UINT32_MAX;
  values.maxSharedLocalMemory = 128 * 1024;
  values.numSubGroupSizes = 2;
  values.subGroupSizes[0] = 16;
  values.subGroupSizes[1] = 32;
  fill(properties, values);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeDeviceGetMemoryAccessProperties(ze_device_handle_t hDevice,
                                                   ze_device_memory_access_properties_t* pMemAccessProperties) {
  find<Device>(hDevice);
  auto& properties =
      checked(pMemAccessProperties, ZE_STRUCTURE_TYPE_DEVICE_MEMORY_ACCESS_PROPERTIES, "pMemAccessProperties");
  constexpr auto all = ZE_MEMORY_ACCESS_CAP_FLAG_RW | ZE_MEMORY_ACCESS_CAP_FLAG_ATOMIC;
  properties.hostAllocCapabilities = all;
  properties.deviceAllocCapabilities = all;
  properties.sharedSingleDeviceAllocCapabilities = all;
  properties.sharedCrossDeviceAllocCapabilities = 0;
  properties.sharedSystemAllocCapabilities = 0;  // the host's pages have to be imported
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeDeviceGetCacheProperties(ze_device_handle_t hDevice, uint32_t* pCount,
                                            ze_device_cache_properties_t* pCacheProperties) {
  find<Device>(hDevice);
  if (entries_to_fill(pCount, pCacheProperties, 1) == 1) {
    auto& properties = checked(pCacheProperties, ZE_STRUCTURE_TYPE_DEVICE_CACHE_PROPERTIES, "pCacheProperties");
    properties.flags = 0;
    properties.cacheSize = cache_size;
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeDeviceGetImageProperties(ze_device_handle_t hDevice,
                                            ze_device_image_properties_t* pImageProperties) {
  find<Device>(hDevice);
  auto& properties = checked(pImageProperties, ZE_STRUCTURE_TYPE_DEVICE_IMAGE_PROPERTIES, "pImageProperties");
  ze_device_image_properties_t values{};  // no kernels, so no samplers and no arguments
  values.maxImageDims1D = values.maxImageDims2D = largest_image_side;
  values.maxImageDims3D = values.maxImageArraySlices = largest_image_depth;
  fill(properties, values);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeDeviceGetExternalMemoryProperties(
    ze_device_handle_t hDevice, ze_device_external_memory_properties_t* pExternalMemoryProperties) {
  find<Device>(hDevice);
  auto& properties = checked(pExternalMemoryProperties, ZE_STRUCTURE_TYPE_DEVICE_EXTERNAL_MEMORY_PROPERTIES,
                             "pExternalMemoryProperties");
  const ze_external_memory_type_flags_t types = behaviour().import_types;
  properties.memoryAllocationImportTypes = types;
  properties.memoryAllocationExportTypes = types & behaviour().export_types;
  properties.imageImportTypes = types;
  properties.imageExportTypes = types & behaviour().export_types;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeDeviceCanAccessPeer(ze_device_handle_t hDevice, ze_device_handle_t hPeerDevice, ze_bool_t* value) {
  find<Device>(hDevice);
  find<Device>(hPeerDevice);
  require(value, "value") = true;  // there is one device, and it can access itself
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeDevicePciGetPropertiesExt(ze_device_handle_t hDevice, ze_pci_ext_properties_t* pPciProperties) {
  find<Device>(hDevice);
  auto& properties = checked(pPciProperties, ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES, "pPciProperties");
  properties.address = {0, 0, 2, 0};   // where integrated GPUs sit
  properties.maxSpeed = {-1, -1, -1};  // unknown
  return ZE_RESULT_SUCCESS;
}

}  // namespace softdriver
