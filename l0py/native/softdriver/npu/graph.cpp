#include "graph.hpp"

#include "device.hpp"
#include "record.hpp"
#include "softdriver_functions.hpp"
#include "text.hpp"

namespace softdriver {
namespace {

constexpr uint32_t known_flags =
    ZE_GRAPH_FLAG_DISABLE_CACHING | ZE_GRAPH_FLAG_ENABLE_PROFILING | ZE_GRAPH_FLAG_INPUT_GRAPH_PERSISTENT;

// The interface of the compiler that the plugin shall speak to: since 5.9 it names ports by their numbers.
constexpr ze_graph_compiler_version_info_t compiler_version{8, 0};
// The newest operation set that the plugin need not rewrite; OpenVINO itself says what it can run.
constexpr uint32_t newest_opset = 16;

// The options that programs give an NPU's compiler. Of these PERF_COUNT is obeyed; the others are hints to hardware.
constexpr const char* compiler_options[] = {
    "PERF_COUNT",
    "PERFORMANCE_HINT",
    "EXECUTION_MODE_HINT",
    "INFERENCE_PRECISION_HINT",
    "LOG_LEVEL",
    "NPU_PLATFORM",
    "NPU_STEPPING",
    "NPU_MAX_TILES",
    "NPU_TILES",
    "NPU_DPU_GROUPS",
    "NPU_DMA_ENGINES",
    "NPU_TURBO",
    "NPU_COMPILATION_MODE",
    "NPU_COMPILATION_MODE_PARAMS",
    "NPU_DYNAMIC_SHAPE_TO_STATIC",
    "NPU_QDQ_OPTIMIZATION",
    "NPU_COMPILER_DYNAMIC_QUANTIZATION",
};

// Why this thread's last graph could not be made: it has no handle to ask. A longer text is cut.
thread_local char last_build_log[4096];

// The extension's structures have room for five dimensions of 32 bits, and numbers for some types only.
void require_describable(const Argument& argument) {
  if (argument.dims.size() > ZE_MAX_GRAPH_ARGUMENT_DIMENSIONS_SIZE) {
    throw ModelError(ModelError::Reason::not_compiled, "an argument of a graph has up to " +
                                                           std::to_string(ZE_MAX_GRAPH_ARGUMENT_DIMENSIONS_SIZE) +
                                                           " dimensions, but '" + argument.friendly_name + "' has " +
                                                           std::to_string(argument.dims.size()));
  }
  for (const size_t dim : argument.dims) {
    if (dim > UINT32_MAX) {
      throw ModelError(ModelError::Reason::not_compiled, "a dimension of a graph's argument has 32 bits, but '" +
                                                             argument.friendly_name + "' has one of " +
                                                             std::to_string(dim));
    }
  }
  if (precision_of(*argument.type) == ZE_GRAPH_ARGUMENT_PRECISION_UNKNOWN) {
    throw ModelError(ModelError::Reason::not_compiled, "an argument of a graph cannot have the type " +
                                                           std::string(argument.type->name) + ", as '" +
                                                           argument.friendly_name + "' has");
  }
}

std::shared_ptr<Model> make_model(const ze_graph_desc_2_t& desc) {
  const ir::Bytes input = graph_input(desc);
  require_flags(desc.flags, known_flags, "desc.flags");
  const bool profiling = (desc.flags & ZE_GRAPH_FLAG_ENABLE_PROFILING) != 0;
  try {
    std::shared_ptr<Model> model;
    switch (static_cast<uint32_t>(desc.format)) {
      case ZE_GRAPH_FORMAT_NATIVE: model = std::make_shared<Model>(input); break;
      case ZE_GRAPH_FORMAT_NGRAPH_LITE:
        model = std::make_shared<Model>(input, desc.pBuildFlags == nullptr ? "" : desc.pBuildFlags, profiling);
        break;
      default: throw ModelError(ModelError::Reason::bad_input, "desc.format is not a graph format");
    }
    for (const Argument& argument : model->arguments()) {
      require_describable(argument);
    }
    return model;
  } catch (const ModelError& error) {
    throw as_failure(error);
  }
}

// Makes a graph and, when asked, the log of its making; the log is made even when the graph cannot be.
ze_result_t create(ze_context_handle_t context, ze_device_handle_t device, const ze_graph_desc_2_t& desc,
                   ze_graph_handle_t* graph, ze_graph_build_log_handle_t* log) {
  auto owner = find<Context>(context);
  find<Device>(device);
  require(graph, "phGraph");
  copy_text(last_build_log, "");
  std::shared_ptr<Model> model;
  try {
    model = make_model(desc);
  } catch (const Failure& failure) {
    copy_text(last_build_log, failure.what());
    if (log != nullptr) {
      *log = publish(std::make_shared<BuildLog>(failure.what()));
    }
    throw;
  }
  const bool precompiled = desc.format == ZE_GRAPH_FORMAT_NATIVE;
  const auto made = publish(std::make_shared<Graph>(std::move(owner), std::move(model), precompiled));
  if (log != nullptr) {
    try {
      *log = publish(std::make_shared<BuildLog>(""));
    } catch (...) {
      retire<Graph>(made);
      throw;
    }
  }
  *graph = made;
  return ZE_RESULT_SUCCESS;
}

uint32_t count_arguments(const Graph& graph) { return static_cast<uint32_t>(graph.model->arguments().size()); }

template <class Properties>
void fill_device_properties(Properties& properties) {
  properties.graphExtensionVersion = static_cast<ze_graph_ext_version_t>(graph_extension_version);
  properties.compilerVersion = compiler_version;
  properties.graphFormatsSupported = ZE_GRAPH_FORMAT_NGRAPH_LITE;
  properties.maxOVOpsetVersionSupported = newest_opset;
}

void require_option_type(ze_npu_options_type_t type) {
  if (type != ZE_NPU_COMPILER_OPTIONS && type != ZE_NPU_DRIVER_OPTIONS) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ENUMERATION, "neither compiler nor driver options");
  }
}

}  // namespace

Graph::Graph(std::shared_ptr<Context> context, std::shared_ptr<Model> model, bool precompiled)
    : Object(kind_of),
      context(std::move(context)),
      model(std::move(model)),
      precompiled(precompiled),
      values_(this->model->arguments().size()) {}

const Argument& Graph::argument(uint32_t index) const {
  const auto& arguments = model->arguments();
  if (index >= arguments.size()) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT,
                  "argument " + std::to_string(index) + " of a graph that has " + std::to_string(arguments.size()));
  }
  return arguments[index];
}

void Graph::set_argument(uint32_t index, const void* pointer) {
  require(static_cast<const std::byte*>(pointer), "pArgValue");
  argument(index);
  const auto lock = home.lock(mutex_);
  values_[index] = pointer;
}

std::vector<const void*> Graph::argument_values() const {
  const auto lock = home.lock(mutex_);
  return values_;
}

// The codes are those of Intel's driver where it has one for the case.
Failure as_failure(const ModelError& error) {
  switch (error.reason) {
    case ModelError::Reason::no_openvino: return {ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE, error.what()};
    case ModelError::Reason::bad_input:
    case ModelError::Reason::bad_binary: return {ZE_RESULT_ERROR_INVALID_ARGUMENT, error.what()};
    case ModelError::Reason::not_compiled: return {ZE_RESULT_ERROR_MODULE_BUILD_FAILURE, error.what()};
    case ModelError::Reason::not_executed: break;
  }
  return {ZE_RESULT_ERROR_UNKNOWN, error.what()};
}

ir::Bytes graph_input(const ze_graph_desc_2_t& desc) {
  require(desc.pInput, "desc.pInput");
  if (desc.inputSize == 0) {
    throw Failure(ZE_RESULT_ERROR_INVALID_SIZE, "desc.inputSize is 0");
  }
  return {reinterpret_cast<const std::byte*>(desc.pInput), desc.inputSize};
}

ze_graph_desc_2_t upgrade(const ze_graph_desc_t& desc) noexcept {
  return {desc.stype, desc.pNext, desc.format, desc.inputSize, desc.pInput, desc.pBuildFlags, 0};
}

ze_result_t api::graph_pfnCreate(ze_context_handle_t hContext, ze_device_handle_t hDevice, const ze_graph_desc_t* desc,
                                 ze_graph_handle_t* phGraph) {
  return create(hContext, hDevice, upgrade(require(desc, "desc")), phGraph, nullptr);
}

ze_result_t api::graph_pfnCreate2(ze_context_handle_t hContext, ze_device_handle_t hDevice,
                                  const ze_graph_desc_2_t* desc, ze_graph_handle_t* phGraph) {
  return create(hContext, hDevice, require(desc, "desc"), phGraph, nullptr);
}

ze_result_t api::graph_pfnCreate3(ze_context_handle_t hContext, ze_device_handle_t hDevice,
                                  const ze_graph_desc_2_t* desc, ze_graph_handle_t* phGraph,
                                  ze_graph_build_log_handle_t* phGraphBuildLog) {
  return create(hContext, hDevice, require(desc, "desc"), phGraph, phGraphBuildLog);
}

// Executions that are in flight, and lists that hold some, keep the model.
ze_result_t api::graph_pfnDestroy(ze_graph_handle_t hGraph) {
  auto gone = retire<Graph>(hGraph);
  gone->home.release(gone);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::graph_pfnGetProperties(ze_graph_handle_t hGraph, ze_graph_properties_t* pGraphProperties) {
  const auto graph = find<Graph>(hGraph);
  require(pGraphProperties, "pGraphProperties").numGraphArgs = count_arguments(*graph);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::graph_pfnGetProperties2(ze_graph_handle_t hGraph, ze_graph_properties_2_t* pGraphProperties) {
  const auto graph = find<Graph>(hGraph);
  auto& properties = require(pGraphProperties, "pGraphProperties");
  properties.numGraphArgs = count_arguments(*graph);
  properties.initStageRequired = ZE_GRAPH_STAGE_INITIALIZE;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::graph_pfnGetProperties3(ze_graph_handle_t hGraph, ze_graph_properties_3_t* pGraphProperties) {
  const auto graph = find<Graph>(hGraph);
  auto& properties = require(pGraphProperties, "pGraphProperties");
  properties.numGraphArgs = count_arguments(*graph);
  properties.initStageRequired = ZE_GRAPH_STAGE_INITIALIZE;
  // Input is copied even when the caller keeps it: lists may execute a graph that was destroyed.
  properties.flags = ZE_GRAPH_PROPERTIES_FLAG_NO_STANDARD_ALLOCATION;
  properties.flags |= graph->precompiled ? ZE_GRAPH_PROPERTIES_FLAG_PRE_COMPILED : ZE_GRAPH_PROPERTIES_FLAG_COMPILED;
  if (graph->model->profiling()) {
    properties.flags |= ZE_GRAPH_PROPERTIES_FLAG_PROFILING_ENABLED;
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::graph_pfnGraphInitialize(ze_graph_handle_t hGraph) {
  const auto graph = find<Graph>(hGraph);
  graph->home.require();
  try {
    graph->model->warm_up();
  } catch (const ModelError& error) {
    throw as_failure(error);
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::graph_pfnEvict(ze_graph_handle_t hGraph) {
  const auto graph = find<Graph>(hGraph);
  if (!graph->home.left()) {  // what executions keep is the parent's
    graph->model->evict();
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::graph_pfnGetNativeBinary(ze_graph_handle_t hGraph, size_t* pSize, uint8_t* pGraphNativeBinary) {
  const auto graph = find<Graph>(hGraph);
  const ir::Bytes binary = graph->model->serialize();
  hand_out(binary.data, binary.size, pSize, pGraphNativeBinary, "pSize");
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::graph_pfnGetNativeBinary2(ze_graph_handle_t hGraph, size_t* pSize,
                                           const uint8_t** pGraphNativeBinary) {
  const auto graph = find<Graph>(hGraph);
  require(pSize, "pSize");
  require(pGraphNativeBinary, "pGraphNativeBinary");
  const ir::Bytes binary = graph->model->serialize();
  *pSize = binary.size;
  *pGraphNativeBinary = reinterpret_cast<const uint8_t*>(binary.data);
  return ZE_RESULT_SUCCESS;
}

// Null asks for the log of this thread's last graph; one that could be made has nothing to say.
ze_result_t api::graph_pfnBuildLogGetString(ze_graph_handle_t hGraph, uint32_t* pSize, char* pBuildLog) {
  if (hGraph != nullptr) {
    find<Graph>(hGraph);
  }
  const char* text = hGraph == nullptr ? last_build_log : "";
  hand_out(text, std::strlen(text) + 1, pSize, pBuildLog, "pSize");
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::graph_pfnBuildLogGetString2(ze_graph_build_log_handle_t hGraphBuildLog, uint32_t* pSize,
                                             char* pBuildLog) {
  const auto log = find<BuildLog>(hGraphBuildLog);
  hand_out(log->text.c_str(), log->text.size() + 1, pSize, pBuildLog, "pSize");
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::graph_pfnBuildLogDestroy(ze_graph_build_log_handle_t hGraphBuildLog) {
  retire<BuildLog>(hGraphBuildLog);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::graph_pfnDeviceGetGraphProperties(ze_device_handle_t hDevice,
                                                   ze_device_graph_properties_t* pDeviceGraphProperties) {
  find<Device>(hDevice);
  fill_device_properties(require(pDeviceGraphProperties, "pDeviceGraphProperties"));
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::graph_pfnDeviceGetGraphProperties2(ze_device_handle_t hDevice,
                                                    ze_device_graph_properties_2_t* pDeviceGraphProperties) {
  find<Device>(hDevice);
  auto& properties = require(pDeviceGraphProperties, "pDeviceGraphProperties");
  fill_device_properties(properties);
  // Its native binaries are no ELF files and no firmware runs them.
  properties.elfVersion = {};
  properties.runtimeVersion = {};
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::graph_pfnQueryContextMemory(ze_context_handle_t hContext, ze_graph_memory_query_type_t type,
                                             ze_graph_memory_query_t* query) {
  find<Context>(hContext);
  auto& answer = require(query, "query");
  switch (static_cast<uint32_t>(type)) {
    case ZE_GRAPH_QUERY_MEMORY_DDR: answer = {device_memory_size(), memory_figures().now}; break;
    case ZE_GRAPH_QUERY_MEMORY_DRIVER_CACHE:
    case ZE_GRAPH_QUERY_MEMORY_PROGRAM_CACHE: answer = {}; break;  // there are no such caches
    default: throw Failure(ZE_RESULT_ERROR_INVALID_ENUMERATION, "no such kind of memory");
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::graph_pfnCompilerGetSupportedOptions(ze_device_handle_t hDevice, ze_npu_options_type_t type,
                                                      size_t* pSize, char* pSupportedOptions) {
  find<Device>(hDevice);
  require_option_type(type);
  require(pSize, "pSize");
  if (type == ZE_NPU_DRIVER_OPTIONS) {
    *pSize = 0;
    return ZE_RESULT_SUCCESS;
  }
  std::string list;
  for (const char* option : compiler_options) {
    list += std::string(list.empty() ? "" : " ") + option;
  }
  hand_out(list.c_str(), list.size() + 1, pSize, pSupportedOptions, "pSize");
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::graph_pfnCompilerIsOptionSupported(ze_device_handle_t hDevice, ze_npu_options_type_t type,
                                                    const char* pOption, const char*) {
  find<Device>(hDevice);
  require_option_type(type);
  const std::string option = &require(pOption, "pOption");
  for (const char* known : compiler_options) {
    if (type == ZE_NPU_COMPILER_OPTIONS && option == known) {
      return ZE_RESULT_SUCCESS;
    }
  }
  throw Failure(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "option " + option + " is not supported");
}

}  // namespace softdriver
