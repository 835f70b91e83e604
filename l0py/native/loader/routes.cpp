// The functions of several drivers that no single handle decides on. The generated table has them by these names.
#include <functional>

#include "route.hpp"

namespace {

// The specification's default driver: the first one that is listed.
const Tables* default_driver() noexcept {
  const Tables* first = nullptr;
  const auto take = [&](const Tables& driver) {
    if (first == nullptr) first = &driver;
    return ZE_RESULT_SUCCESS;
  };
  ask_each(std::cref(take));
  return first;
}

template <class Handle, class Slot>
ze_result_t list_drivers(uint32_t* count, Handle* handles, Slot slot_of) noexcept {
  if (count == nullptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  DriverList<Handle> list(count, handles);
  const auto ask = [&](const Tables& driver) {
    return list.add(driver, [&](uint32_t* room, Handle* rest) { return call(slot_of(driver), room, rest); });
  };
  const ze_result_t result = ask_each(std::cref(ask));
  if (result == ZE_RESULT_SUCCESS) list.tell_count();
  return result;
}

}  // namespace

ze_result_t ZE_APICALL route_zeDriverGet(uint32_t* pCount, ze_driver_handle_t* phDrivers) {
  return list_drivers(pCount, phDrivers, [](const Tables& driver) { return driver.ze_driver.pfnGet; });
}

ze_result_t ZE_APICALL route_zesDriverGet(uint32_t* pCount, zes_driver_handle_t* phDrivers) {
  return list_drivers(pCount, phDrivers, [](const Tables& driver) { return driver.zes_driver.pfnGet; });
}

// Devices of two drivers cannot reach each other's memory, which is an answer and no error.
ze_result_t ZE_APICALL route_zeDeviceCanAccessPeer(ze_device_handle_t hDevice, ze_device_handle_t hPeerDevice,
                                                   ze_bool_t* value) {
  const Tables* driver = owner_of(hDevice);
  if (driver == nullptr) return unknown(hDevice);
  if (!is_foreign(driver, hPeerDevice)) return call(driver->ze_device.pfnCanAccessPeer, hDevice, hPeerDevice, value);
  if (value == nullptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  *value = false;
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL route_zerGetLastErrorDescription(const char** ppString) {
  const Tables* driver = default_driver();
  return driver != nullptr ? call(driver->zer_global.pfnGetLastErrorDescription, ppString) : missing();
}

// Numbers of devices mean something within one driver only.
uint32_t ZE_APICALL route_zerTranslateDeviceHandleToIdentifier(ze_device_handle_t hDevice) {
  const Tables* driver = default_driver();
  if (driver == nullptr || owner_of(hDevice) != driver) return UINT32_MAX;
  const auto translate = driver->zer_global.pfnTranslateDeviceHandleToIdentifier;
  return translate != nullptr ? translate(hDevice) : UINT32_MAX;
}

ze_device_handle_t ZE_APICALL route_zerTranslateIdentifierToDeviceHandle(uint32_t identifier) {
  const Tables* driver = default_driver();
  if (driver == nullptr) return nullptr;
  return learned(driver, call(driver->zer_global.pfnTranslateIdentifierToDeviceHandle, identifier));
}

ze_context_handle_t ZE_APICALL route_zerGetDefaultContext() {
  const Tables* driver = default_driver();
  return driver != nullptr ? learned(driver, call(driver->zer_global.pfnGetDefaultContext)) : nullptr;
}
