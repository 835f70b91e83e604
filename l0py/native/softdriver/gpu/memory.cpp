// What the GPU's driver has beyond allocation: how memory is freed, where it lies, and when all see it.
#include "behaviour.hpp"
#include "context.hpp"
#include "device.hpp"
#include "softdriver_functions.hpp"

namespace softdriver {
namespace {

void require_memory(const Context& context, const void* address) {
  require(address, "ptr");
  if (context.allocations.find(address) == nullptr) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "the context has no memory at this address");
  }
}

}  // namespace

// Memory is freed when the last command that uses it has run, which is what both policies promise.
ze_result_t api::zeMemFreeExt(ze_context_handle_t context, const ze_memory_free_ext_desc_t* desc, void* address) {
  const auto found = find<Context>(context);
  const auto& wanted = require(desc, "pMemFreeDesc");
  require_stype(wanted.stype, ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC, "pMemFreeDesc");
  constexpr uint32_t known =
      ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE | ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE;
  require_flags(wanted.freePolicy, known, "pMemFreeDesc->freePolicy");
  if ((wanted.freePolicy & ~behaviour().free_policies) != 0) {
    throw Failure(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "the driver does not free memory by this policy");
  }
  free_memory(*found, address);
  return ZE_RESULT_SUCCESS;
}

// All memory is the host's, so it lies where every device reaches it.
ze_result_t api::zeContextMakeMemoryResident(ze_context_handle_t context, ze_device_handle_t device, void* address,
                                             size_t) {
  const auto found = find<Context>(context);
  find<Device>(device);
  require_memory(*found, address);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeContextEvictMemory(ze_context_handle_t context, ze_device_handle_t device, void* address, size_t) {
  const auto found = find<Context>(context);
  find<Device>(device);
  require_memory(*found, address);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeContextSystemBarrier(ze_context_handle_t context, ze_device_handle_t device) {
  find<Context>(context);
  if (!behaviour().system_barrier) {
    throw Failure(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "the driver has no system barrier");
  }
  if (device == nullptr) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "device handle is null");
  }
  find<Device>(device);
  return ZE_RESULT_SUCCESS;
}

// The context is for some of the driver's devices, of which there is one.
ze_result_t api::zeContextCreateEx(ze_driver_handle_t driver, const ze_context_desc_t* desc, uint32_t count,
                                   ze_device_handle_t* devices, ze_context_handle_t* context) {
  if (count > 0 && devices == nullptr) {
    throw Failure(ZE_RESULT_ERROR_INVALID_SIZE, "phDevices is null but numDevices is not 0");
  }
  for (uint32_t i = 0; i < count; ++i) {
    find<Device>(devices[i]);
  }
  return api::zeContextCreate(driver, desc, context);
}

}  // namespace softdriver
