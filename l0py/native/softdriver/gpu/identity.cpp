// What programs take this driver for: Intel's GPU driver, of the releases that differ in what they do with memory.
#include <limits>

#include "behaviour.hpp"

namespace softdriver {
namespace {

constexpr Extension old_extensions[] = {
    {ZE_PCI_PROPERTIES_EXT_NAME, ZE_PCI_PROPERTIES_EXT_VERSION_1_0},
    {ZE_DEVICE_MEMORY_PROPERTIES_EXT_NAME, ZE_DEVICE_MEMORY_PROPERTIES_EXT_VERSION_1_0},
};
constexpr Extension extensions[] = {
    {ZE_PCI_PROPERTIES_EXT_NAME, ZE_PCI_PROPERTIES_EXT_VERSION_1_0},
    {ZE_DEVICE_LUID_EXT_NAME, ZE_DEVICE_LUID_EXT_VERSION_1_0},
    {ZE_MEMORY_FREE_POLICIES_EXT_NAME, ZE_MEMORY_FREE_POLICIES_EXT_VERSION_1_0},
    {ZE_IMAGE_QUERY_ALLOC_PROPERTIES_EXT_NAME, ZE_IMAGE_QUERY_ALLOC_PROPERTIES_EXT_VERSION_1_0},
    {ZE_IMAGE_MEMORY_PROPERTIES_EXP_NAME, ZE_IMAGE_MEMORY_PROPERTIES_EXP_VERSION_1_0},
    {ZE_EXTERNAL_MEMORY_MAPPING_EXT_NAME, ZE_EXTERNAL_MEMMAP_SYSMEM_EXT_VERSION_1_0},
};

// GPU drivers number themselves by their build, and begin their uuid with that number.
constexpr uint32_t version_of(uint32_t build) { return 0x01030000 + build; }
constexpr ze_driver_uuid_t uuid_of(uint32_t build) {
  const uint32_t version = version_of(build);
  return {{static_cast<uint8_t>(version), static_cast<uint8_t>(version >> 8), static_cast<uint8_t>(version >> 16),
           static_cast<uint8_t>(version >> 24), 'l', '0', 'p', 'y'}};
}
constexpr size_t any_size = std::numeric_limits<size_t>::max();
constexpr auto dma_buf = ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF;
constexpr auto opaque_fd = ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD;
constexpr auto opaque_win32 = ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_WIN32;
#ifdef _WIN32
constexpr auto imported = ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_WIN32 | ZE_EXTERNAL_MEMORY_TYPE_FLAG_D3D12_HEAP |
                          ZE_EXTERNAL_MEMORY_TYPE_FLAG_D3D12_RESOURCE;
constexpr auto imported_by_debian_12 = imported;
#else
constexpr auto imported = dma_buf | opaque_fd;
constexpr auto imported_by_debian_12 = dma_buf;
#endif

constexpr Behaviour release_26_14() {
  constexpr uint32_t build = 37833;
  Behaviour own{};
  own.release = "26.14";
  // That of its functions for memory. Those for kernels answer UNSUPPORTED_FEATURE, whatever their age.
  own.api_version = ZE_API_VERSION_1_15;
  own.newest_functions = ZE_API_VERSION_CURRENT;
  own.driver_version = version_of(build);
  own.uuid = uuid_of(build);
  own.ipc = ZE_IPC_PROPERTY_FLAG_MEMORY;
  own.extensions = extensions;
  own.extension_count = sizeof extensions / sizeof extensions[0];

  own.host_chain = Chain::honoured;
  own.device_chain = Chain::honoured;
  own.shared_chain = Chain::checked;
  own.first_link_only = false;
  own.unknown_link = ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
  own.import_types = imported;
  own.export_types = dma_buf | opaque_fd | opaque_win32;
  own.exact_export_types = false;
  own.bad_handle_type = ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
  own.bad_handle = ZE_RESULT_ERROR_INVALID_ARGUMENT;
  own.closes_imports = true;
  own.closes_image_imports = true;
  own.maps_host_pages = true;
  own.read_only_flags = ZE_HOST_MEM_ALLOC_FLAG_MEM_READ_ONLY;
  own.bad_host_pages = ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  own.pages_not_for_host = ZE_RESULT_SUCCESS;
  own.empty_allocations = false;
  own.checks_alignment = false;
  own.most_alignment = any_size;
  own.too_large = ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
  own.no_host_memory = ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;

  own.foreign_is_unknown = true;
  own.foreign_range = ZE_RESULT_ERROR_ADDRESS_NOT_FOUND;
  own.cpu_ranges = true;
  own.tells_device = true;
  own.page_sizes = PageSizes::by_type_and_size;
  own.unknown_query = ZE_RESULT_ERROR_INVALID_ENUMERATION;
  own.other_kind = OtherKind::exported;
  own.unasked = Unasked::pooled;
  own.exports_host = true;
  own.exports_shared = false;
  own.keeps_exports = true;
  own.opaque_ipc = true;
  own.device_status = true;
  own.system_barrier = true;

  own.frees_from_within = true;
  own.free_policies =
      ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE | ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE;
  own.host_pointers = true;
  return own;
}

// The last that leaves an imported descriptor open. Its build number is not known here: it is a smaller one.
constexpr Behaviour release_26_13() {
  constexpr uint32_t build = 37800;
  Behaviour own = release_26_14();
  own.release = "26.13";
  own.driver_version = version_of(build);
  own.uuid = uuid_of(build);
  own.closes_imports = false;
  return own;
}

// Debian 12's.
constexpr Behaviour release_22_43() {
  constexpr uint32_t build = 24595;
  Behaviour own = release_26_13();
  own.release = "22.43";
  own.api_version = own.newest_functions = ZE_API_VERSION_1_3;
  own.driver_version = version_of(build);
  own.uuid = uuid_of(build);
  own.extensions = old_extensions;
  own.extension_count = sizeof old_extensions / sizeof old_extensions[0];

  own.host_chain = Chain::ignored;
  own.shared_chain = Chain::ignored;
  own.import_types = imported_by_debian_12;
  own.export_types = dma_buf | opaque_win32;
  own.maps_host_pages = false;
  own.empty_allocations = true;
  own.most_alignment = size_t{64} * 1024;

  own.foreign_range = ZE_RESULT_ERROR_UNKNOWN;
  own.page_sizes = PageSizes::by_type;
  own.other_kind = OtherKind::refused;
  own.unasked = Unasked::exported;
  own.exports_host = false;
  own.keeps_exports = false;
  own.opaque_ipc = false;
  own.device_status = false;
  own.system_barrier = false;

  own.free_policies = ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE;
  return own;
}

constexpr Behaviour releases[] = {release_26_14(), release_26_13(), release_22_43()};

constexpr QueueGroup queue_groups[] = {
    {ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE | ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY, any_size},
    {ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY, 16},
};

}  // namespace

const Identity identity = {
    "gpu",
    ZE_INIT_FLAG_GPU_ONLY,
    "L0PY_SOFTGPU_RECORD",
    "L0PY_SOFTGPU_RELEASE",
    queue_groups,
    sizeof queue_groups / sizeof queue_groups[0],
    releases,
    sizeof releases / sizeof releases[0],
};

}  // namespace softdriver
