#include "context.hpp"

#include "device.hpp"
#include "softdriver_functions.hpp"

namespace softdriver {

ze_result_t api::zeContextCreate(ze_driver_handle_t hDriver, const ze_context_desc_t* desc,
                                 ze_context_handle_t* phContext) {
  find<Driver>(hDriver);
  const auto& description = require(desc, "desc");
  auto& out = require(phContext, "phContext");
  require_stype(description.stype, ZE_STRUCTURE_TYPE_CONTEXT_DESC, "desc");
  require_flags(description.flags, ZE_CONTEXT_FLAG_TBD, "desc->flags");
  out = publish(std::make_shared<Context>());
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeContextDestroy(ze_context_handle_t hContext) {
  // Its queues and lists may outlive it; its memory does not.
  retire<Context>(hContext)->allocations.clear();
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeContextGetStatus(ze_context_handle_t hContext) {
  find<Context>(hContext);
  return ZE_RESULT_SUCCESS;
}

}  // namespace softdriver
