// When a command ran, by the event that it completed.
#include "event.hpp"
#include "softdriver_functions.hpp"

namespace softdriver {

ze_result_t api::zeEventQueryKernelTimestamp(ze_event_handle_t hEvent, ze_kernel_timestamp_result_t* dstptr) {
  const auto event = find_own_event(hEvent);
  auto& out = require(dstptr, "dstptr");
  constexpr uint32_t timed = ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP | ZE_EVENT_POOL_FLAG_KERNEL_MAPPED_TIMESTAMP;
  if ((event->pool->flags & timed) == 0) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "the event's pool was made without timestamps");
  }
  if (!event->signal.completed()) {
    return ZE_RESULT_NOT_READY;
  }
  // The device has one clock, which is the host's.
  const ze_kernel_timestamp_data_t time{event->began, event->ended};
  out = {time, time};
  return ZE_RESULT_SUCCESS;
}

}  // namespace softdriver
