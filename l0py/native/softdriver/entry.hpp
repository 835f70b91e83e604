// The one way into the driver: faults first, then the implementation, then the record.
#pragma once

#include <cstdint>
#include <exception>
#include <new>
#include <type_traits>

#include "behaviour.hpp"
#include "faults.hpp"
#include "record.hpp"
#include "result.hpp"
#include "softdriver_functions.hpp"

namespace softdriver {

template <class T>
uint64_t as_number(T value) noexcept {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<uintptr_t>(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<uint64_t>(static_cast<double>(value));
  } else if constexpr (std::is_class_v<T>) {
    return 0;  // structures passed by value (IPC handles, ids) have no one number
  } else {
    return static_cast<uint64_t>(value);
  }
}

// What every function answers that is not implemented.
inline ze_result_t unsupported() noexcept {
  set_last_error("the driver does not have this function");
  return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

// Runs `body` (an implementation) and answers a result code, whatever happens in it. `since`: the API version that
// brought the function.
template <class Body, class... Arguments>
ze_result_t enter(Function function, uint32_t since, Body&& body, Arguments... arguments) noexcept {
  ze_result_t result = ZE_RESULT_SUCCESS;
  if (take_fault(function, &result)) {
    set_last_error("injected fault");
  } else if (since > static_cast<uint32_t>(behaviour().newest_functions)) {
    result = unsupported();
  } else {
    try {
      result = body();
    } catch (const Failure& failure) {
      set_last_error(failure.what());
      result = failure.result;
    } catch (const std::bad_alloc&) {
      set_last_error("out of memory");
      result = ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    } catch (const std::exception& error) {
      set_last_error(error.what());
      result = ZE_RESULT_ERROR_UNKNOWN;
    } catch (...) {
      set_last_error("unknown exception");
      result = ZE_RESULT_ERROR_UNKNOWN;
    }
  }
  if (recording_calls()) {
    record_call(function, result, {as_number(arguments)...});
  }
  return result;
}

}  // namespace softdriver
