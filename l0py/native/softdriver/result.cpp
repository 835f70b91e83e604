#include "result.hpp"

#include <cstdio>

namespace softdriver {
namespace {

// Plain storage: it needs no destructor, so calls made while a thread or the process ends are safe.
thread_local char last_error_text[1024];

}  // namespace

const char* result_name(ze_result_t result) noexcept {
#define NAME(code) \
  case ZE_RESULT_##code: return "ZE_RESULT_" #code
  switch (result) {
    NAME(SUCCESS);
    NAME(NOT_READY);
    NAME(ERROR_DEVICE_LOST);
    NAME(ERROR_OUT_OF_HOST_MEMORY);
    NAME(ERROR_OUT_OF_DEVICE_MEMORY);
    NAME(ERROR_MODULE_BUILD_FAILURE);
    NAME(ERROR_MODULE_LINK_FAILURE);
    NAME(ERROR_DEVICE_REQUIRES_RESET);
    NAME(ERROR_DEVICE_IN_LOW_POWER_STATE);
    NAME(ERROR_INSUFFICIENT_PERMISSIONS);
    NAME(ERROR_NOT_AVAILABLE);
    NAME(ERROR_DEPENDENCY_UNAVAILABLE);
    NAME(WARNING_DROPPED_DATA);
    NAME(ERROR_UNINITIALIZED);
    NAME(ERROR_UNSUPPORTED_VERSION);
    NAME(ERROR_UNSUPPORTED_FEATURE);
    NAME(ERROR_INVALID_ARGUMENT);
    NAME(ERROR_INVALID_NULL_HANDLE);
    NAME(ERROR_HANDLE_OBJECT_IN_USE);
    NAME(ERROR_INVALID_NULL_POINTER);
    NAME(ERROR_INVALID_SIZE);
    NAME(ERROR_UNSUPPORTED_SIZE);
    NAME(ERROR_UNSUPPORTED_ALIGNMENT);
    NAME(ERROR_INVALID_SYNCHRONIZATION_OBJECT);
    NAME(ERROR_INVALID_ENUMERATION);
    NAME(ERROR_UNSUPPORTED_ENUMERATION);
    NAME(ERROR_INVALID_NATIVE_BINARY);
    NAME(ERROR_INVALID_COMMAND_LIST_TYPE);
    NAME(ERROR_OVERLAPPING_REGIONS);
    NAME(ERROR_ADDRESS_NOT_FOUND);
    NAME(ERROR_UNKNOWN);
    default: return "another ze_result_t";
  }
#undef NAME
}

void set_last_error(const char* text) noexcept { std::snprintf(last_error_text, sizeof last_error_text, "%s", text); }

const char* last_error() noexcept { return last_error_text; }

}  // namespace softdriver
