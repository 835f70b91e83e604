// What the loader says about itself, and its end.
#include <cstring>

#include "driver_tables.hpp"

namespace {

// Programs look for this name and compare the release: it is the one whose functions this loader has.
constexpr zel_component_version_t self = {"loader", ZE_API_VERSION_CURRENT, interface_release};

// Nothing to take back: see zelRegisterTeardownCallback.
void forget_callback(uint32_t) {}

}  // namespace

extern "C" {

ZE_APIEXPORT ze_result_t ZE_APICALL zelGetLoaderVersion(zel_component_version_t* version) {
  if (version == nullptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  *version = self;
  return ZE_RESULT_SUCCESS;
}

ZE_APIEXPORT ze_result_t ZE_APICALL zelLoaderGetVersions(size_t* num_elems, zel_component_version_t* versions) {
  if (num_elems == nullptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  if (versions != nullptr && *num_elems > 0) *versions = self;
  if (versions == nullptr || *num_elems > 1) *num_elems = 1;
  return ZE_RESULT_SUCCESS;
}

// Nothing is wrapped: every handle is its driver's own.
ZE_APIEXPORT ze_result_t ZE_APICALL zelLoaderTranslateHandle(zel_handle_type_t handleType, void* handleIn,
                                                             void** handleOut) {
  if (handleOut == nullptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  if (handleType < ZEL_HANDLE_DRIVER || handleType > ZEL_HANDLE_PHYSICAL_MEM)
    return ZE_RESULT_ERROR_INVALID_ENUMERATION;
  *handleOut = handleIn;
  return ZE_RESULT_SUCCESS;
}

// Drivers call this when they are about to be unloaded, which is when the process ends.
ZE_APIEXPORT ze_result_t ZE_APICALL zelSetDriverTeardown() {
  forget_drivers();
  return ZE_RESULT_SUCCESS;
}

ZE_APIEXPORT bool ZE_APICALL zelCheckIsLoaderInTearDown() { return drivers_are_gone(); }

// The loader itself stays until the process ends, so there is no context to delay and no end to call back for.
ZE_APIEXPORT void ZE_APICALL zelSetDelayLoaderContextTeardown() {}
ZE_APIEXPORT void ZE_APICALL zelLoaderContextTeardown() {}
ZE_APIEXPORT ze_result_t ZE_APICALL zelRegisterTeardownCallback(zel_loader_teardown_callback_t application_callback,
                                                                zel_application_teardown_callback_t* loader_callback,
                                                                uint32_t* index) {
  if (application_callback == nullptr || loader_callback == nullptr || index == nullptr) {
    return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  }
  *loader_callback = forget_callback;
  *index = 0;
  return ZE_RESULT_SUCCESS;
}

ZE_APIEXPORT ze_result_t ZE_APICALL zelGetTracingLayerState(bool* enabled) {
  if (enabled == nullptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  *enabled = false;
  return ZE_RESULT_SUCCESS;
}

}  // extern "C"
