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

ze_result_t api::context_pfnSetProperties(ze_context_handle_t hContext,
                                          ze_context_properties_npu_ext_t* ContextProperties) {
  auto context = find<Context>(hContext);
  const auto& properties = require(ContextProperties, "ContextProperties");
  if (properties.stype != ZE_STRUCTURE_TYPE_CONTEXT_PROPERTIES_NPU_EXT) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "ContextProperties has a wrong stype");
  }
  require_flags(properties.options, ZE_NPU_CONTEXT_OPTION_IDLE_OPTIMIZATIONS, "ContextProperties->options");
  context->options = properties.options;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::context_pfnReleaseMemory(ze_context_handle_t hContext) {
  find<Context>(hContext);  // no memory is kept back between uses, so there is none to give up
  return ZE_RESULT_SUCCESS;
}

}  // namespace softdriver
