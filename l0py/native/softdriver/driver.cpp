#include <atomic>
#include <cstring>
#include <mutex>

#include "behaviour.hpp"
#include "device.hpp"
#include "fork.hpp"
#include "properties.hpp"
#include "softdriver_functions.hpp"
#include "tables.hpp"
#include "text.hpp"

namespace softdriver {
namespace {

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
  if (flags != 0 && (flags & identity.type) == 0) {
    throw Failure(ZE_RESULT_ERROR_UNINITIALIZED, std::string("no ") + identity.name + " was asked for");
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

// An extension's table or a function of the API.
void* address_of(const char* name) noexcept {
  void* table = extension_table(name);
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
  require(version, "version") = behaviour().api_version;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeDriverGetProperties(ze_driver_handle_t hDriver, ze_driver_properties_t* pDriverProperties) {
  find<Driver>(hDriver);
  auto& properties = require(pDriverProperties, "pDriverProperties");
  require_stype(properties.stype, ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES, "pDriverProperties");
  properties.uuid = behaviour().uuid;
  properties.driverVersion = behaviour().driver_version;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeDriverGetIpcProperties(ze_driver_handle_t hDriver, ze_driver_ipc_properties_t* pIpcProperties) {
  find<Driver>(hDriver);
  auto& properties = require(pIpcProperties, "pIpcProperties");
  require_stype(properties.stype, ZE_STRUCTURE_TYPE_DRIVER_IPC_PROPERTIES, "pIpcProperties");
  properties.flags = behaviour().ipc;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeDriverGetExtensionProperties(ze_driver_handle_t hDriver, uint32_t* pCount,
                                                ze_driver_extension_properties_t* pExtensionProperties) {
  find<Driver>(hDriver);
  const Behaviour& own = behaviour();
  const uint32_t entries = entries_to_fill(pCount, pExtensionProperties, own.extension_count);
  for (uint32_t i = 0; i < entries; ++i) {
    auto& entry = pExtensionProperties[i];
    entry = {};
    copy_text(entry.name, own.extensions[i].name);
    entry.version = own.extensions[i].version;
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
