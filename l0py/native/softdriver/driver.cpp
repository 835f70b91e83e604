#include <atomic>
#include <cstring>
#include <mutex>

#include "device.hpp"
#include "fork.hpp"
#include "pages.hpp"
#include "record.hpp"
#include "softdriver_functions.hpp"
#include "tables.hpp"
#include "text.hpp"

namespace softdriver {
namespace {

// Intel's NPU driver: by this OpenVINO recognises an NPU.
constexpr ze_driver_uuid_t npu_driver_uuid{
    {0x01, 0x7d, 0xe9, 0x31, 0x6b, 0x4d, 0x4f, 0xd4, 0xaa, 0x9b, 0x5b, 0xed, 0x77, 0xfc, 0x8e, 0x89}};
// NPU drivers number themselves by the Unix time of their build; programs compare that to know what to expect.
constexpr uint32_t driver_version = 1'760'000'000;

struct Extension {
  const char* name;
  uint32_t version;
};

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
constexpr uint32_t extension_count = sizeof extensions / sizeof extensions[0];

// The driver and its device. Deliberately never destroyed: other libraries call the driver while the process exits.
struct System {
  std::shared_ptr<Driver> driver = std::make_shared<Driver>();
  std::shared_ptr<Device> device = std::make_shared<Device>();
};
std::atomic<System*> the_system{nullptr};

System& require_system() {
  System* system = the_system.load(std::memory_order_acquire);
  if (system == nullptr) {
    throw Failure(ZE_RESULT_ERROR_UNINITIALIZED, "the driver was not initialised");
  }
  return *system;
}

void start_system() {
  std::lock_guard lock(process_lock(Lock::system));
  if (the_system.load(std::memory_order_relaxed) != nullptr) {
    return;
  }
  auto system = std::make_unique<System>();
  publish(system->driver);
  publish(system->device);
  the_system.store(system.release(), std::memory_order_release);
}

// Old loaders initialise twice, so the second time is as good as the first.
void initialise(ze_init_flags_t flags) {
  if (flags != 0 && (flags & ZE_INIT_FLAG_VPU_ONLY) == 0) {
    throw Failure(ZE_RESULT_ERROR_UNINITIALIZED, "this is an NPU driver, and an NPU was not asked for");
  }
  start_system();
}

ze_result_t list_driver(uint32_t* count, ze_driver_handle_t* handles) {
  System& system = require_system();
  if (entries_to_fill(count, handles, 1) == 1) {
    handles[0] = static_cast<ze_driver_handle_t>(system.driver->handle());
  }
  return ZE_RESULT_SUCCESS;
}

// A table of an NPU extension or a function of the API.
void* address_of(const char* name) noexcept {
  void* table = npu_extension_table(name);
  return table != nullptr ? table : entry_point(name);
}

}  // namespace

Driver& the_driver() { return *require_system().driver; }

Device& the_device() { return *require_system().device; }

ze_result_t api::zeInit(ze_init_flags_t flags) {
  initialise(flags);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeInitDrivers(uint32_t* pCount, ze_driver_handle_t* phDrivers, ze_init_driver_type_desc_t* desc) {
  require(pCount, "pCount");
  initialise(require(desc, "desc").flags);  // the type flags have the init flags' values; loaders check no stype here
  return list_driver(pCount, phDrivers);
}

ze_result_t api::zeDriverGet(uint32_t* pCount, ze_driver_handle_t* phDrivers) { return list_driver(pCount, phDrivers); }

ze_result_t api::zeDriverGetApiVersion(ze_driver_handle_t hDriver, ze_api_version_t* version) {
  find<Driver>(hDriver);
  require(version, "version") = api_version;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeDriverGetProperties(ze_driver_handle_t hDriver, ze_driver_properties_t* pDriverProperties) {
  find<Driver>(hDriver);
  auto& properties = require(pDriverProperties, "pDriverProperties");
  require_stype(properties.stype, ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES, "pDriverProperties");
  properties.uuid = npu_driver_uuid;
  properties.driverVersion = driver_version;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeDriverGetIpcProperties(ze_driver_handle_t hDriver, ze_driver_ipc_properties_t* pIpcProperties) {
  find<Driver>(hDriver);
  auto& properties = require(pIpcProperties, "pIpcProperties");
  require_stype(properties.stype, ZE_STRUCTURE_TYPE_DRIVER_IPC_PROPERTIES, "pIpcProperties");
  // What Intel's NPU driver answers, although its IPC functions answer UNSUPPORTED_FEATURE, as they do here.
  properties.flags = ZE_IPC_PROPERTY_FLAG_MEMORY;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeDriverGetExtensionProperties(ze_driver_handle_t hDriver, uint32_t* pCount,
                                                ze_driver_extension_properties_t* pExtensionProperties) {
  find<Driver>(hDriver);
  const uint32_t entries = entries_to_fill(pCount, pExtensionProperties, extension_count);
  for (uint32_t i = 0; i < entries; ++i) {
    auto& entry = pExtensionProperties[i];
    entry = {};
    std::strncpy(entry.name, extensions[i].name, sizeof entry.name - 1);
    entry.version = extensions[i].version;
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeDriverGetExtensionFunctionAddress(ze_driver_handle_t hDriver, const char* name,
                                                     void** ppFunctionAddress) {
  find<Driver>(hDriver);
  require(name, "name");
  void*& out = require(ppFunctionAddress, "ppFunctionAddress");
  void* address = address_of(name);
  if (address == nullptr) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "no extension or function of this name");
  }
  out = address;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::driver_pfnGetExtension(ze_driver_handle_t hDriver, ze_driver_extension_npu_ext_t* pExtension) {
  find<Driver>(hDriver);
  auto& wanted = require(pExtension, "pExtension");
  require(wanted.name, "pExtension->name");
  void*& out = require(wanted.ppFunctionAddress, "pExtension->ppFunctionAddress");
  for (const Extension& extension : extensions) {
    if (std::strcmp(extension.name, wanted.name) != 0) {
      continue;
    }
    if (ZE_MAJOR_VERSION(wanted.version) != ZE_MAJOR_VERSION(extension.version) || wanted.version > extension.version) {
      throw Failure(ZE_RESULT_ERROR_UNSUPPORTED_VERSION, std::string("no such version of ") + wanted.name);
    }
    // Tables only grow, so the newest one serves every older version.
    if (void* table = npu_extension_table(extension.name)) {
      out = table;
      return ZE_RESULT_SUCCESS;
    }
  }
  throw Failure(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, std::string("no function table of ") + wanted.name);
}

ze_result_t api::zeDriverGetLastErrorDescription(ze_driver_handle_t hDriver, const char** ppString) {
  find<Driver>(hDriver);
  const char*& out = require(ppString, "ppString");
  // A copy, so that the text stays what it is when the next call fails too.
  thread_local char text[max_error_text];
  copy_text(text, last_error());
  out = text;
  return ZE_RESULT_SUCCESS;
}

}  // namespace softdriver
