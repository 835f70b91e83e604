// The three ways to initialize: each finds the drivers if that has not been done yet.
#include <functional>

#include "route.hpp"

namespace {

static_assert(uint32_t{wanted_gpu} == ZE_INIT_FLAG_GPU_ONLY && uint32_t{wanted_npu} == ZE_INIT_FLAG_VPU_ONLY);
static_assert(uint32_t{wanted_gpu} == ZE_INIT_DRIVER_TYPE_FLAG_GPU);
static_assert(uint32_t{wanted_npu} == ZE_INIT_DRIVER_TYPE_FLAG_NPU);

// No flag of ours means every type, as 0 does for zeInit.
uint32_t types(uint32_t flags) noexcept {
  return (flags & wanted_any_type) != 0 ? flags & wanted_any_type : wanted_any_type;
}

ze_result_t init(const Tables& driver, ze_init_flags_t flags) {
  return driver.ze_global.pfnInit != nullptr ? driver.ze_global.pfnInit(flags) : ZE_RESULT_ERROR_UNINITIALIZED;
}

// Drivers from before 1.10 have no zeInitDrivers.
ze_result_t init_and_get(const Tables& driver, uint32_t wanted, uint32_t* count, ze_driver_handle_t* handles) {
  const ze_result_t result = init(driver, wanted == wanted_any_type ? 0 : wanted);
  if (result != ZE_RESULT_SUCCESS) return result;
  if (driver.ze_driver.pfnGet == nullptr) return ZE_RESULT_ERROR_UNINITIALIZED;
  return driver.ze_driver.pfnGet(count, handles);
}

ze_result_t init_drivers(const Tables& driver, uint32_t* count, ze_driver_handle_t* handles,
                         ze_init_driver_type_desc_t* desc) {
  const uint32_t room = *count;
  ze_result_t result = call(driver.ze_global.pfnInitDrivers, count, handles, desc);
  if (result == ZE_RESULT_ERROR_UNSUPPORTED_FEATURE) {
    *count = room;
    result = init_and_get(driver, types(desc->flags), count, handles);
  }
  return result == ZE_RESULT_SUCCESS && *count == 0 ? ZE_RESULT_ERROR_UNINITIALIZED : result;
}

}  // namespace

extern "C" {

ZE_APIEXPORT ze_result_t ZE_APICALL zeInit(ze_init_flags_t flags) {
  const auto with = [=](const Tables& driver) { return init(driver, flags); };
  return initialize(types(flags), std::cref(with));
}

ZE_APIEXPORT ze_result_t ZE_APICALL zeInitDrivers(uint32_t* pCount, ze_driver_handle_t* phDrivers,
                                                  ze_init_driver_type_desc_t* desc) {
  if (pCount == nullptr || desc == nullptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  if (desc->flags == 0) return ZE_RESULT_ERROR_INVALID_ENUMERATION;
  DriverList<ze_driver_handle_t> list(pCount, phDrivers);
  const auto with = [&](const Tables& driver) {
    return list.add(driver, [&](uint32_t* count, ze_driver_handle_t* handles) {
      return init_drivers(driver, count, handles, desc);
    });
  };
  const ze_result_t result = initialize(types(desc->flags), std::cref(with));
  if (result == ZE_RESULT_SUCCESS) list.tell_count();
  return result;
}

ZE_APIEXPORT ze_result_t ZE_APICALL zesInit(zes_init_flags_t flags) {
  const auto with = [=](const Tables& driver) { return call(driver.zes_global.pfnInit, flags); };
  return initialize(wanted_sysman, std::cref(with));
}

}  // extern "C"
