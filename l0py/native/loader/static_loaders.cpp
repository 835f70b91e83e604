// What programs with a statically linked loader call, which opens this one and takes its tables: oneAPI's SYCL runtime
// is one. These names are no part of the API; without them such a program crashes.
#include "driver_tables.hpp"
#include "shared_library.hpp"

extern "C" {

ZE_APIEXPORT ze_result_t ZE_APICALL zelLoaderGetVersions(size_t* num_elems, zel_component_version_t* versions);
ZE_APIEXPORT ze_result_t ZE_APICALL zelGetLoaderVersion(zel_component_version_t* version);
ZE_APIEXPORT ze_result_t ZE_APICALL zelLoaderTranslateHandle(zel_handle_type_t handleType, void* handleIn,
                                                             void** handleOut);

// Finding drivers waits for the init that follows, because that says which.
ZE_APIEXPORT ze_result_t ZE_APICALL zeLoaderInit() { return ZE_RESULT_SUCCESS; }

// The library that has the tracing layer's table: this one, whose functions answer that there is no tracing.
ZE_APIEXPORT void* ZE_APICALL zeLoaderGetTracingHandle() {
  return platform::library_of(reinterpret_cast<const void*>(&zeLoaderGetTracingHandle));
}

ZE_APIEXPORT ze_result_t ZE_APICALL zelLoaderGetVersionsInternal(size_t* num_elems, zel_component_version_t* versions) {
  return zelLoaderGetVersions(num_elems, versions);
}

ZE_APIEXPORT ze_result_t ZE_APICALL zelLoaderGetVersion(zel_component_version_t* version) {
  return zelGetLoaderVersion(version);
}

ZE_APIEXPORT ze_result_t ZE_APICALL zelLoaderTranslateHandleInternal(zel_handle_type_t handleType, void* handleIn,
                                                                     void** handleOut) {
  return zelLoaderTranslateHandle(handleType, handleIn, handleOut);
}

}  // extern "C"
