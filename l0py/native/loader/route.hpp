// What the functions in `routes` are made of.
#pragma once

#include <algorithm>
#include <type_traits>

#include "driver_tables.hpp"
#include "owners.hpp"

// No driver's handle: null, never given out, or destroyed. A single driver would be left to find that out itself, and
// most crash. What a driver's extension functions made is unknown too: it is for such functions, and for every place
// but a call's first.
inline ze_result_t unknown(const void* handle) noexcept {
  return handle == nullptr ? ZE_RESULT_ERROR_INVALID_NULL_HANDLE : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

// Another driver's. What nobody gave out may be the driver's own, from one of its extension functions.
inline bool is_foreign(const Tables* driver, const void* handle) noexcept {
  const Tables* owner = owner_of(handle);
  return owner != nullptr && owner != driver;
}

template <class Handle>
bool is_foreign(const Tables* driver, const Handle* handles, uint32_t count) noexcept {
  return handles != nullptr &&
         std::any_of(handles, handles + count, [=](Handle handle) { return is_foreign(driver, handle); });
}

template <class Handle>
Handle first_of(const Handle* handles, uint32_t count) noexcept {
  return handles != nullptr && count > 0 ? *handles : nullptr;
}

template <class Result, class... Parameters, class... Arguments>
Result call(Result(ZE_APICALL* function)(Parameters...), Arguments... arguments) {
  if (function != nullptr) return function(arguments...);
  if constexpr (std::is_same_v<Result, ze_result_t>) {
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  } else {
    return {};
  }
}

// Remembers what a call gave out. A handle for which there is no memory is lost to the caller, who is told so.
template <class Handle>
void learn_one(const Tables* driver, const Handle* handle, ze_result_t* result) noexcept {
  if (*result != ZE_RESULT_SUCCESS || handle == nullptr) return;
  if (!learn(*handle, driver)) *result = ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

// For functions whose result is the handle.
template <class Handle>
Handle learned(const Tables* driver, Handle handle) noexcept {
  return learn(handle, driver) ? handle : nullptr;
}

// Logs come with failed builds too.
inline void learn_log(const Tables* driver, const ze_module_build_log_handle_t* log, ze_result_t* result) noexcept {
  const bool gave_one = *result == ZE_RESULT_SUCCESS || *result == ZE_RESULT_ERROR_MODULE_BUILD_FAILURE ||
                        *result == ZE_RESULT_ERROR_MODULE_LINK_FAILURE;
  if (gave_one && log != nullptr && !learn(*log, driver)) *result = ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

// How many handles the caller has room for.
template <class Handle>
uint32_t room_in(const Handle* handles, const uint32_t* count) noexcept {
  return handles != nullptr && count != nullptr ? *count : 0;
}

template <class Handle>
void learn_list(const Tables* driver, const Handle* handles, const uint32_t* count, uint32_t room,
                ze_result_t* result) noexcept {
  if (*result != ZE_RESULT_SUCCESS || room == 0) return;
  for (uint32_t i = 0; i < std::min(*count, room); ++i) learn_one(driver, handles + i, result);
}

// Fills a caller's list driver by driver, in the API's way of asking twice: first how many, then for them.
template <class Handle>
class DriverList {
 public:
  DriverList(uint32_t* count, Handle* handles) noexcept
      : count_(count), handles_(handles), room_(room_in(handles, count)) {}

  // `get(count, handles)` asks one driver.
  template <class Get>
  ze_result_t add(const Tables& driver, Get&& get) {
    const uint32_t left = room_ - filled_;
    Handle* rest = left > 0 ? handles_ + filled_ : nullptr;
    uint32_t count = left;
    ze_result_t result = get(&count, rest);
    if (result != ZE_RESULT_SUCCESS) return result;
    learn_list(&driver, rest, &count, left, &result);
    filled_ += std::min(count, left);
    if (room_ == 0) available_ += count;
    return result;
  }

  // Afterwards, when a driver answered.
  void tell_count() const noexcept { *count_ = room_ > 0 ? filled_ : available_; }

 private:
  uint32_t* const count_;
  Handle* const handles_;
  const uint32_t room_;
  uint32_t filled_ = 0;
  uint32_t available_ = 0;
};
