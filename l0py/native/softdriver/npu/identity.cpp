// What programs take this driver for: Intel's NPU driver.
#include "behaviour.hpp"
#include "graph.hpp"
#include "pages.hpp"

namespace softdriver {
namespace {

constexpr Extension extensions[] = {
    {ZE_GRAPH_EXT_NAME, graph_extension_version},
    {ZE_PROFILING_DATA_EXT_NAME, ZE_PROFILING_DATA_EXT_VERSION_1_0},
    {ZE_DRIVER_NPU_EXT_NAME, ZE_DRIVER_NPU_EXT_VERSION_1_0},
    {ZE_COMMAND_QUEUE_NPU_EXT_NAME, ZE_COMMAND_QUEUE_NPU_EXT_VERSION_1_1},
    {ZE_CONTEXT_NPU_EXT_NAME, ZE_CONTEXT_NPU_EXT_VERSION_1_0},
    {ZE_MUTABLE_COMMAND_LIST_EXP_NAME, ZE_MUTABLE_COMMAND_LIST_EXP_VERSION_1_1},
    {ZE_EXTERNAL_MEMORY_MAPPING_EXT_NAME, ZE_EXTERNAL_MEMMAP_SYSMEM_EXT_VERSION_1_0},
    {ZE_DEVICE_LUID_EXT_NAME, ZE_DEVICE_LUID_EXT_VERSION_1_0},
    {ZE_PCI_PROPERTIES_EXT_NAME, ZE_PCI_PROPERTIES_EXT_VERSION_1_0},
};

#ifdef _WIN32
constexpr auto handle_type = ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_WIN32;
#else
constexpr auto handle_type = ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF;
#endif

constexpr Behaviour release_1_32_1() {
  Behaviour own{};
  own.release = "1.32.1";
  own.api_version = ZE_API_VERSION_1_13;  // what newer ones add to the core (the `zer` functions) is not here
  own.newest_functions = ZE_API_VERSION_CURRENT;
  own.driver_version = 1'760'000'000;  // the Unix time of its build: programs compare that
  // By this OpenVINO recognises an NPU.
  own.uuid = {{0x01, 0x7d, 0xe9, 0x31, 0x6b, 0x4d, 0x4f, 0xd4, 0xaa, 0x9b, 0x5b, 0xed, 0x77, 0xfc, 0x8e, 0x89}};
  own.ipc = ZE_IPC_PROPERTY_FLAG_MEMORY;  // though its IPC functions answer UNSUPPORTED_FEATURE, as they do here
  own.extensions = extensions;
  own.extension_count = sizeof extensions / sizeof extensions[0];

  own.host_chain = Chain::honoured;
  own.device_chain = Chain::honoured;
  own.shared_chain = Chain::honoured;
  own.first_link_only = true;
  own.unknown_link = ZE_RESULT_SUCCESS;
  own.import_types = handle_type;
  own.export_types = handle_type;
  own.exact_export_types = true;
  own.bad_handle_type = ZE_RESULT_ERROR_INVALID_ENUMERATION;
  own.bad_handle = ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
  own.closes_imports = false;
  own.closes_image_imports = false;
  own.maps_host_pages = true;
  own.read_only_flags = ZE_HOST_MEM_ALLOC_FLAG_BIAS_WRITE_COMBINED | ZE_HOST_MEM_ALLOC_FLAG_MEM_READ_ONLY;
  own.bad_host_pages = ZE_RESULT_SUCCESS;
  own.pages_not_for_host = ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  own.empty_allocations = false;
  own.checks_alignment = true;
  own.most_alignment = page_size;
  own.too_large = ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
  own.no_host_memory = ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;

  own.foreign_is_unknown = false;
  own.foreign_range = ZE_RESULT_ERROR_NOT_AVAILABLE;
  own.cpu_ranges = false;
  own.tells_device = false;
  own.page_sizes = PageSizes::small;
  own.unknown_query = ZE_RESULT_SUCCESS;
  own.other_kind = OtherKind::passed_over;
  own.unasked = Unasked::refused;
  own.exports_host = true;
  own.exports_shared = true;
  own.keeps_exports = false;
  own.opaque_ipc = false;
  own.device_status = true;
  own.system_barrier = false;

  own.frees_from_within = false;
  own.free_policies = 0;
  own.host_pointers = false;
  return own;
}

constexpr Behaviour releases[] = {release_1_32_1()};

constexpr QueueGroup queue_groups[] = {
    {ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE | ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY, 4},
};

}  // namespace

const Identity identity = {
    "npu",
    ZE_INIT_FLAG_VPU_ONLY,
    "L0PY_SOFTDRIVER_RECORD",
    "L0PY_SOFTDRIVER_RELEASE",
    queue_groups,
    sizeof queue_groups / sizeof queue_groups[0],
    releases,
    sizeof releases / sizeof releases[0],
};

}  // namespace softdriver
