// Arguments of graphs: what they are, and their values.
#include <algorithm>

#include "graph.hpp"
#include "softdriver_functions.hpp"
#include "text.hpp"

namespace softdriver {
namespace {

struct TypeNumbers {
  const char* name;
  ze_graph_argument_precision_t precision;
  ze_graph_metadata_type metadata;  // knows fewer types
};

constexpr TypeNumbers type_numbers[] = {
    {"boolean", ZE_GRAPH_ARGUMENT_PRECISION_BOOLEAN, ZE_GRAPH_METADATA_TYPE_BOOLEAN},
    {"bf16", ZE_GRAPH_ARGUMENT_PRECISION_BF16, ZE_GRAPH_METADATA_TYPE_BF16},
    {"f16", ZE_GRAPH_ARGUMENT_PRECISION_FP16, ZE_GRAPH_METADATA_TYPE_F16},
    {"f32", ZE_GRAPH_ARGUMENT_PRECISION_FP32, ZE_GRAPH_METADATA_TYPE_F32},
    {"f64", ZE_GRAPH_ARGUMENT_PRECISION_FP64, ZE_GRAPH_METADATA_TYPE_F64},
    {"f8e4m3", ZE_GRAPH_ARGUMENT_PRECISION_FP8_E4M3, ZE_GRAPH_METADATA_TYPE_UNDEFINED},
    {"f8e5m2", ZE_GRAPH_ARGUMENT_PRECISION_FP8_E5M2, ZE_GRAPH_METADATA_TYPE_UNDEFINED},
    {"f8e8m0", ZE_GRAPH_ARGUMENT_PRECISION_FP8_E8M0, ZE_GRAPH_METADATA_TYPE_UNDEFINED},
    {"i4", ZE_GRAPH_ARGUMENT_PRECISION_INT4, ZE_GRAPH_METADATA_TYPE_I4},
    {"i8", ZE_GRAPH_ARGUMENT_PRECISION_INT8, ZE_GRAPH_METADATA_TYPE_I8},
    {"i16", ZE_GRAPH_ARGUMENT_PRECISION_INT16, ZE_GRAPH_METADATA_TYPE_I16},
    {"i32", ZE_GRAPH_ARGUMENT_PRECISION_INT32, ZE_GRAPH_METADATA_TYPE_I32},
    {"i64", ZE_GRAPH_ARGUMENT_PRECISION_INT64, ZE_GRAPH_METADATA_TYPE_I64},
    {"nf4", ZE_GRAPH_ARGUMENT_PRECISION_NF4, ZE_GRAPH_METADATA_TYPE_UNDEFINED},
    {"u1", ZE_GRAPH_ARGUMENT_PRECISION_BIN, ZE_GRAPH_METADATA_TYPE_U1},
    {"u2", ZE_GRAPH_ARGUMENT_PRECISION_UINT2, ZE_GRAPH_METADATA_TYPE_UNDEFINED},
    {"u4", ZE_GRAPH_ARGUMENT_PRECISION_UINT4, ZE_GRAPH_METADATA_TYPE_U4},
    {"u8", ZE_GRAPH_ARGUMENT_PRECISION_UINT8, ZE_GRAPH_METADATA_TYPE_U8},
    {"u16", ZE_GRAPH_ARGUMENT_PRECISION_UINT16, ZE_GRAPH_METADATA_TYPE_U16},
    {"u32", ZE_GRAPH_ARGUMENT_PRECISION_UINT32, ZE_GRAPH_METADATA_TYPE_U32},
    {"u64", ZE_GRAPH_ARGUMENT_PRECISION_UINT64, ZE_GRAPH_METADATA_TYPE_U64},
};

constexpr TypeNumbers no_numbers{"", ZE_GRAPH_ARGUMENT_PRECISION_UNKNOWN, ZE_GRAPH_METADATA_TYPE_UNDEFINED};

const TypeNumbers& numbers_of(const ElementType& type) noexcept {
  const std::string_view name = type.name;
  for (const TypeNumbers& numbers : type_numbers) {
    if (name == numbers.name) {
      return numbers;
    }
  }
  return no_numbers;
}

ze_graph_argument_layout_t layout_of(size_t rank) noexcept {
  switch (rank) {
    case 0: return ZE_GRAPH_ARGUMENT_LAYOUT_ANY;
    case 1: return ZE_GRAPH_ARGUMENT_LAYOUT_C;
    case 2: return ZE_GRAPH_ARGUMENT_LAYOUT_NC;
    case 3: return ZE_GRAPH_ARGUMENT_LAYOUT_CHW;
    case 4: return ZE_GRAPH_ARGUMENT_LAYOUT_NCHW;
    default: return ZE_GRAPH_ARGUMENT_LAYOUT_NCDHW;
  }
}

// As many names as there is room for.
template <size_t count, size_t size>
uint32_t copy_names(char (&fields)[count][size], const std::vector<std::string>& names) noexcept {
  const size_t used = std::min(names.size(), count);
  for (size_t i = 0; i < used; ++i) {
    copy_text(fields[i], names[i]);
  }
  return static_cast<uint32_t>(used);
}

ze_graph_argument_type_t direction_of(const Argument& argument) noexcept {
  return argument.is_input ? ZE_GRAPH_ARGUMENT_TYPE_INPUT : ZE_GRAPH_ARGUMENT_TYPE_OUTPUT;
}

// What all versions of the structure have. Their stype and pNext are the caller's. No graph has an argument with more
// dimensions than there is room for.
template <class Properties>
void fill(Properties& properties, const Argument& argument) {
  copy_text(properties.name, argument.name);
  properties.type = direction_of(argument);
  std::fill_n(properties.dims, ZE_MAX_GRAPH_ARGUMENT_DIMENSIONS_SIZE, 1);
  std::copy(argument.dims.begin(), argument.dims.end(), properties.dims);
  properties.networkPrecision = properties.devicePrecision = precision_of(*argument.type);
  properties.networkLayout = properties.deviceLayout = layout_of(argument.dims.size());
}

}  // namespace

ze_graph_argument_precision_t precision_of(const ElementType& type) noexcept { return numbers_of(type).precision; }

ze_result_t api::graph_pfnGetArgumentProperties(ze_graph_handle_t hGraph, uint32_t argIndex,
                                                ze_graph_argument_properties_t* pGraphArgumentProperties) {
  const auto graph = find<Graph>(hGraph);
  fill(require(pGraphArgumentProperties, "pGraphArgumentProperties"), graph->argument(argIndex));
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::graph_pfnGetArgumentProperties2(ze_graph_handle_t hGraph, uint32_t argIndex,
                                                 ze_graph_argument_properties_2_t* pGraphArgumentProperties) {
  const auto graph = find<Graph>(hGraph);
  auto& properties = require(pGraphArgumentProperties, "pGraphArgumentProperties");
  fill(properties, graph->argument(argIndex));
  properties.quantReverseScale = 1;
  properties.quantZeroPoint = 0;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::graph_pfnGetArgumentProperties3(ze_graph_handle_t hGraph, uint32_t argIndex,
                                                 ze_graph_argument_properties_3_t* pGraphArgumentProperties) {
  const auto graph = find<Graph>(hGraph);
  auto& properties = require(pGraphArgumentProperties, "pGraphArgumentProperties");
  const Argument& argument = graph->argument(argIndex);
  fill(properties, argument);
  properties.quantReverseScale = 1;
  properties.quantZeroPoint = 0;
  properties.dims_count = static_cast<uint32_t>(argument.dims.size());
  copy_text(properties.debug_friendly_name, argument.friendly_name);
  properties.associated_tensor_names_count = copy_names(properties.associated_tensor_names, argument.tensor_names);
  // Some callers leave stype and pNext uninitialised.
  if (properties.stype == ZE_STRUCTURE_TYPE_GRAPH_ARGUMENT_PROPERTIES_3) {
    auto* strides = find_next<ze_graph_argument_property_strides_t>(properties.pNext,
                                                                    ZE_STRUCTURE_TYPE_GRAPH_ARGUMENT_PROPERTY_STRIDES);
    if (strides != nullptr) {
      strides->supportsDynamicStrides = false;
    }
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::graph_pfnGraphGetArgumentMetadata(ze_graph_handle_t hGraph, uint32_t argIndex,
                                                   ze_graph_argument_metadata_t* pGraphArgumentMetadata) {
  const auto graph = find<Graph>(hGraph);
  auto& metadata = require(pGraphArgumentMetadata, "pGraphArgumentMetadata");
  const Argument& argument = graph->argument(argIndex);
  metadata.type = direction_of(argument);
  copy_text(metadata.friendly_name, argument.friendly_name);
  metadata.data_type = numbers_of(*argument.type).metadata;
  std::fill_n(metadata.shape, ZE_MAX_GRAPH_TENSOR_REF_DIMS, 0);
  std::copy(argument.dims.begin(), argument.dims.end(), metadata.shape);
  metadata.shape_size = static_cast<uint32_t>(argument.dims.size());
  metadata.tensor_names_count = copy_names(metadata.tensor_names, argument.tensor_names);
  copy_text(metadata.input_name, argument.name);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::graph_pfnSetArgumentValue(ze_graph_handle_t hGraph, uint32_t argIndex, const void* pArgValue) {
  find<Graph>(hGraph)->set_argument(argIndex, pArgValue);
  return ZE_RESULT_SUCCESS;
}

// The value is a structure here, so that strides can follow it. No argument supports strides, as its properties say.
ze_result_t api::graph_pfnSetArgumentValue2(ze_graph_handle_t hGraph, uint32_t argIndex, const void* pArgValue) {
  const auto graph = find<Graph>(hGraph);
  const auto& value = require(static_cast<const ze_graph_argument_value_tensor_t*>(pArgValue), "pArgValue");
  if (value.stype != ZE_STRUCTURE_TYPE_GRAPH_ARGUMENT_TENSOR) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "pArgValue has a wrong stype");
  }
  const void* next = value.pNext;
  const auto* strides = find_next<ze_graph_argument_value_strides_t>(next, ZE_STRUCTURE_TYPE_GRAPH_ARGUMENT_STRIDES);
  if (strides != nullptr) {
    throw Failure(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "arguments with strides are not supported");
  }
  graph->set_argument(argIndex, value.pTensor);
  return ZE_RESULT_SUCCESS;
}

}  // namespace softdriver
