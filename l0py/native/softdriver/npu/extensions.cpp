// The NPU's extensions of the driver, of contexts and of queues.
#include <cstring>

#include "behaviour.hpp"
#include "command_queue.hpp"
#include "context.hpp"
#include "device.hpp"
#include "softdriver_functions.hpp"
#include "tables.hpp"

namespace softdriver {

constexpr uint32_t known_options = ZE_NPU_COMMAND_QUEUE_OPTION_TURBO | ZE_NPU_COMMAND_QUEUE_OPTION_DEVICE_SYNC;

// The NPU's numbers of structures are the core's too, with other meanings: they count in this chain only.
void check_queue_extensions(const ze_command_queue_desc_t& desc) {
  const auto* npu =
      find_next<ze_command_queue_desc_npu_ext_2_t>(desc.pNext, ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC_NPU_EXT_2);
  if (npu == nullptr) {
    return;
  }
  require_flags(npu->options, known_options, "options");
  if (desc.mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS && (npu->options & ZE_NPU_COMMAND_QUEUE_OPTION_DEVICE_SYNC) != 0) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ENUMERATION, "a synchronous queue cannot have the device sync option");
  }
}

ze_result_t api::driver_pfnGetExtension(ze_driver_handle_t hDriver, ze_driver_extension_npu_ext_t* pExtension) {
  find<Driver>(hDriver);
  auto& wanted = require(pExtension, "pExtension");
  require(wanted.name, "pExtension->name");
  void*& out = require(wanted.ppFunctionAddress, "pExtension->ppFunctionAddress");
  const Behaviour& own = behaviour();
  for (uint32_t i = 0; i < own.extension_count; ++i) {
    const Extension& extension = own.extensions[i];
    if (std::strcmp(extension.name, wanted.name) != 0) {
      continue;
    }
    if (ZE_MAJOR_VERSION(wanted.version) != ZE_MAJOR_VERSION(extension.version) || wanted.version > extension.version) {
      throw Failure(ZE_RESULT_ERROR_UNSUPPORTED_VERSION, std::string("no such version of ") + wanted.name);
    }
    // Tables only grow, so the newest one serves every older version.
    if (void* table = extension_table(extension.name)) {
      out = table;
      return ZE_RESULT_SUCCESS;
    }
  }
  throw Failure(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, std::string("no function table of ") + wanted.name);
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

// A hint to the scheduler of the hardware; there is none here.
ze_result_t api::command_queue_pfnSetWorkloadType(ze_command_queue_handle_t queue,
                                                  ze_command_queue_workload_type_t type) {
  find<CommandQueue>(queue);
  if (type != ZE_WORKLOAD_TYPE_DEFAULT && type != ZE_WORKLOAD_TYPE_BACKGROUND) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ENUMERATION, "workload type is unknown");
  }
  return ZE_RESULT_SUCCESS;
}

}  // namespace softdriver
