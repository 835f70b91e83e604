// Which layers of a model the device supports.
#include "device.hpp"
#include "graph.hpp"
#include "softdriver_functions.hpp"

namespace softdriver {
namespace {

ze_result_t create(ze_context_handle_t context, ze_device_handle_t device, const ze_graph_desc_2_t& desc,
                   ze_graph_query_network_handle_t* query) {
  find<Context>(context);
  find<Device>(device);
  require(query, "phGraphQueryNetwork");
  const ir::Bytes input = graph_input(desc);
  if (desc.format != ZE_GRAPH_FORMAT_NGRAPH_LITE) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "only a model's IR has layers to ask about");
  }
  std::string layers;
  try {
    for (const std::string& name : supported_layers(input, desc.pBuildFlags == nullptr ? "" : desc.pBuildFlags)) {
      layers += '<' + name + '>';
    }
  } catch (const ModelError& error) {
    throw as_failure(error);
  }
  *query = publish(std::make_shared<QueryNetwork>(std::move(layers)));
  return ZE_RESULT_SUCCESS;
}

}  // namespace

ze_result_t api::graph_pfnQueryNetworkCreate(ze_context_handle_t hContext, ze_device_handle_t hDevice,
                                             const ze_graph_desc_t* desc,
                                             ze_graph_query_network_handle_t* phGraphQueryNetwork) {
  return create(hContext, hDevice, upgrade(require(desc, "desc")), phGraphQueryNetwork);
}

ze_result_t api::graph_pfnQueryNetworkCreate2(ze_context_handle_t hContext, ze_device_handle_t hDevice,
                                              const ze_graph_desc_2_t* desc,
                                              ze_graph_query_network_handle_t* phGraphQueryNetwork) {
  return create(hContext, hDevice, require(desc, "desc"), phGraphQueryNetwork);
}

ze_result_t api::graph_pfnQueryNetworkDestroy(ze_graph_query_network_handle_t hGraphQueryNetwork) {
  retire<QueryNetwork>(hGraphQueryNetwork);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::graph_pfnQueryNetworkGetSupportedLayers(ze_graph_query_network_handle_t hGraphQueryNetwork,
                                                         size_t* pSize, char* pSupportedLayers) {
  const auto query = find<QueryNetwork>(hGraphQueryNetwork);
  hand_out(query->layers.data(), query->layers.size(), pSize, pSupportedLayers, "pSize");
  return ZE_RESULT_SUCCESS;
}

}  // namespace softdriver
