// Function tables, both ways to initialise, and the driver's queries.
#include <algorithm>
#include <cstring>
#include <vector>

#include "check.hpp"
#include "table_slots.hpp"

using check::npu;

namespace {

using Getter = ze_result_t(ZE_APICALL*)(ze_api_version_t, void*);
Getter getter_of(const char* name) { return reinterpret_cast<Getter>(check::driver_symbol(name)); }

void* const untouched = reinterpret_cast<void*>(0x5a5a5a5a5a5a5a5a);
using Slots = std::vector<void*>;

}  // namespace

// Loaders up to 1.25 refuse a driver that lacks one of these.
TEST(every_table_that_old_loaders_demand) {
  constexpr const char* demanded[] = {
      "zeGetGlobalProcAddrTable",
      "zeGetDriverProcAddrTable",
      "zeGetDeviceProcAddrTable",
      "zeGetContextProcAddrTable",
      "zeGetCommandQueueProcAddrTable",
      "zeGetCommandListProcAddrTable",
      "zeGetEventProcAddrTable",
      "zeGetEventPoolProcAddrTable",
      "zeGetFenceProcAddrTable",
      "zeGetImageProcAddrTable",
      "zeGetKernelProcAddrTable",
      "zeGetMemProcAddrTable",
      "zeGetModuleProcAddrTable",
      "zeGetModuleBuildLogProcAddrTable",
      "zeGetPhysicalMemProcAddrTable",
      "zeGetSamplerProcAddrTable",
      "zeGetVirtualMemProcAddrTable",
      "zetGetDeviceProcAddrTable",
      "zetGetContextProcAddrTable",
      "zetGetCommandListProcAddrTable",
      "zetGetKernelProcAddrTable",
      "zetGetModuleProcAddrTable",
      "zetGetDebugProcAddrTable",
      "zetGetMetricProcAddrTable",
      "zetGetMetricGroupProcAddrTable",
      "zetGetMetricQueryProcAddrTable",
      "zetGetMetricQueryPoolProcAddrTable",
      "zetGetMetricStreamerProcAddrTable",
      "zetGetTracerExpProcAddrTable",
      "zesGetDeviceProcAddrTable",
      "zesGetDriverProcAddrTable",
      "zesGetDiagnosticsProcAddrTable",
      "zesGetEngineProcAddrTable",
      "zesGetFabricPortProcAddrTable",
      "zesGetFanProcAddrTable",
      "zesGetFirmwareProcAddrTable",
      "zesGetFrequencyProcAddrTable",
      "zesGetLedProcAddrTable",
      "zesGetMemoryProcAddrTable",
      "zesGetPerformanceFactorProcAddrTable",
      "zesGetPowerProcAddrTable",
      "zesGetPsuProcAddrTable",
      "zesGetRasProcAddrTable",
      "zesGetSchedulerProcAddrTable",
      "zesGetStandbyProcAddrTable",
      "zesGetTemperatureProcAddrTable",
  };
  static_assert(std::size(demanded) == 46);
  for (const char* name : demanded) {
    const Getter getter = getter_of(name);
    CHECK(getter != nullptr);
    if (getter != nullptr) {
      Slots slots(256, nullptr);
      OK(getter(ZE_API_VERSION_1_4, slots.data()));
      CHECK(slots[0] != nullptr);
    }
  }
}

// A table is as large as the caller's version makes it: what lies behind belongs to somebody else.
TEST(tables_hold_what_their_version_has_and_no_more) {
  for (ze_api_version_t version : {ZE_API_VERSION_1_0, ZE_API_VERSION_1_4, ZE_API_VERSION_1_13, ZE_API_VERSION_1_17}) {
    for (const TableSlots& table : table_slots) {
      const Getter getter = getter_of(table.getter);
      CHECK(getter != nullptr);
      Slots slots(table.count + 16, untouched);
      OK(getter(version, slots.data()));
      for (size_t i = 0; i < slots.size(); ++i) {
        const bool known = i < table.count && table.since[i] <= static_cast<uint32_t>(version);
        if ((slots[i] != untouched) != known) {
          std::printf("%s: slot %zu at version %#x\n", table.getter, i, static_cast<unsigned>(version));
          CHECK(!"a slot is missing or written too early");
        }
      }
    }
  }
}

TEST(sizes_of_the_first_table_by_version) {
  auto written = [](ze_api_version_t version) {
    Slots slots(8, untouched);
    OK(getter_of("zeGetGlobalProcAddrTable")(version, slots.data()));
    return std::count_if(slots.begin(), slots.end(), [](void* slot) { return slot != untouched; });
  };
  CHECK(written(ZE_API_VERSION_1_0) == 1);
  CHECK(written(ZE_API_VERSION_1_9) == 1);
  CHECK(written(ZE_API_VERSION_1_10) == 2);
  CHECK(written(ZE_API_VERSION_1_17) == 2);
}

TEST(tables_of_another_major_version_or_nowhere) {
  for (const TableSlots& table : table_slots) {
    const Getter getter = getter_of(table.getter);
    for (uint32_t version : {ZE_MAKE_VERSION(0, 91), ZE_MAKE_VERSION(2, 0), UINT32_MAX}) {
      Slots slots(table.count, untouched);
      CHECK_RESULT(getter(static_cast<ze_api_version_t>(version), slots.data()), ERROR_UNSUPPORTED_VERSION);
      CHECK(std::all_of(slots.begin(), slots.end(), [](void* slot) { return slot == untouched; }));
    }
    CHECK_RESULT(getter(ZE_API_VERSION_1_17, nullptr), ERROR_INVALID_NULL_POINTER);
  }
}

TEST(nothing_works_before_init) {
  uint32_t count = 1;
  ze_driver_handle_t driver = nullptr;
  CHECK_RESULT(l0.ze_driver.pfnGet(&count, &driver), ERROR_UNINITIALIZED);
  CHECK(driver == nullptr);
}

TEST(init_for_another_kind_of_device) {
  CHECK_RESULT(l0.ze_global.pfnInit(ZE_INIT_FLAG_GPU_ONLY), ERROR_UNINITIALIZED);
  ze_init_driver_type_desc_t gpu{ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC, nullptr, ZE_INIT_DRIVER_TYPE_FLAG_GPU};
  uint32_t count = 0;
  CHECK_RESULT(l0.ze_global.pfnInitDrivers(&count, nullptr, &gpu), ERROR_UNINITIALIZED);
}

TEST(init_again_changes_nothing) {
  const ze_driver_handle_t driver = npu().driver;
  for (ze_init_flags_t flags : {0U, uint32_t{ZE_INIT_FLAG_VPU_ONLY}, 3U}) {
    OK(l0.ze_global.pfnInit(flags));
    uint32_t count = 1;
    ze_driver_handle_t again = nullptr;
    OK(l0.ze_driver.pfnGet(&count, &again));
    CHECK(count == 1 && again == driver);
  }
}

TEST(init_drivers) {
  ze_init_driver_type_desc_t desc{ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC, nullptr, UINT32_MAX};
  uint32_t count = 0;
  OK(l0.ze_global.pfnInitDrivers(&count, nullptr, &desc));
  CHECK(count == 1);
  ze_driver_handle_t drivers[3] = {};
  count = 3;
  OK(l0.ze_global.pfnInitDrivers(&count, drivers, &desc));
  CHECK(count == 1 && drivers[0] == npu().driver && drivers[1] == nullptr);
  CHECK_RESULT(l0.ze_global.pfnInitDrivers(nullptr, drivers, &desc), ERROR_INVALID_NULL_POINTER);
  CHECK_RESULT(l0.ze_global.pfnInitDrivers(&count, drivers, nullptr), ERROR_INVALID_NULL_POINTER);
}

TEST(properties) {
  ze_driver_properties_t properties{};
  properties.stype = ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES;
  OK(l0.ze_driver.pfnGetProperties(npu().driver, &properties));
  CHECK(properties.uuid.id[0] == 0x01 && properties.uuid.id[15] == 0x89);
  CHECK_RESULT(l0.ze_driver.pfnGetProperties(npu().driver, nullptr), ERROR_INVALID_NULL_POINTER);
  properties.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC;
  CHECK_RESULT(l0.ze_driver.pfnGetProperties(npu().driver, &properties), ERROR_INVALID_ARGUMENT);
  ze_api_version_t version{};
  OK(l0.ze_driver.pfnGetApiVersion(npu().driver, &version));
  CHECK(version == ZE_API_VERSION_1_13);
  CHECK_RESULT(l0.ze_driver.pfnGetApiVersion(npu().driver, nullptr), ERROR_INVALID_NULL_POINTER);
  ze_driver_ipc_properties_t ipc{};
  ipc.stype = ZE_STRUCTURE_TYPE_DRIVER_IPC_PROPERTIES;
  OK(l0.ze_driver.pfnGetIpcProperties(npu().driver, &ipc));
  CHECK(ipc.flags == ZE_IPC_PROPERTY_FLAG_MEMORY);
}

TEST(extensions_by_two_calls) {
  auto get = l0.ze_driver.pfnGetExtensionProperties;
  uint32_t count = 0;
  OK(get(npu().driver, &count, nullptr));
  const uint32_t all = count;
  CHECK(all >= 9);
  std::vector<ze_driver_extension_properties_t> entries(all + 3);
  count = all + 3;
  OK(get(npu().driver, &count, entries.data()));
  CHECK(count == all && entries[all].name[0] == '\0');
  CHECK(std::any_of(entries.begin(), entries.end(), [](const ze_driver_extension_properties_t& entry) {
    return std::strcmp(entry.name, ZE_GRAPH_EXT_NAME) == 0 && entry.version >= ZE_GRAPH_EXT_VERSION_1_8;
  }));
  count = 2;
  std::vector<ze_driver_extension_properties_t> two(3);
  OK(get(npu().driver, &count, two.data()));
  CHECK(count == 2 && two[1].name[0] != '\0' && two[2].name[0] == '\0');
  CHECK_RESULT(get(npu().driver, nullptr, two.data()), ERROR_INVALID_NULL_POINTER);
}

TEST(functions_by_name) {
  auto get = l0.ze_driver.pfnGetExtensionFunctionAddress;
  for (const char* name : {"ZE_extension_graph", "ZE_extension_profiling_data", "ZE_extension_driver_npu",
                           "ZE_extension_command_queue_npu", "ZE_extension_context_npu", "zeMemAllocHost",
                           "zeCommandListUpdateMutableCommandsExp"}) {
    void* address = nullptr;
    OK(get(npu().driver, name, &address));
    CHECK(address != nullptr);
  }
  void* address = untouched;
  for (const char* name : {"", "nothing", "zeModuleCreate", "l0sd_inject"}) {
    CHECK_RESULT(get(npu().driver, name, &address), ERROR_INVALID_ARGUMENT);
  }
  CHECK(address == untouched);
  CHECK_RESULT(get(npu().driver, nullptr, &address), ERROR_INVALID_NULL_POINTER);
  CHECK_RESULT(get(npu().driver, "zeMemFree", nullptr), ERROR_INVALID_NULL_POINTER);
}

TEST(extension_tables_by_version) {
  auto get = check::extension<ze_driver_npu_dditable_ext_t>("ZE_extension_driver_npu").pfnGetExtension;
  void* table = nullptr;
  ze_driver_extension_npu_ext_t wanted{};
  wanted.ppFunctionAddress = &table;
  wanted.name = ZE_CONTEXT_NPU_EXT_NAME;
  wanted.version = ZE_MAKE_VERSION(1, 0);
  OK(get(npu().driver, &wanted));
  CHECK(table == &check::extension<ze_context_npu_dditable_ext_t>("ZE_extension_context_npu"));
  for (uint32_t version : {ZE_MAKE_VERSION(0, 9), ZE_MAKE_VERSION(1, 1), ZE_MAKE_VERSION(2, 0)}) {
    wanted.version = version;
    CHECK_RESULT(get(npu().driver, &wanted), ERROR_UNSUPPORTED_VERSION);
  }
  wanted.name = "ZE_extension_of_another_driver";
  CHECK_RESULT(get(npu().driver, &wanted), ERROR_UNSUPPORTED_FEATURE);
  wanted.name = nullptr;
  CHECK_RESULT(get(npu().driver, &wanted), ERROR_INVALID_NULL_POINTER);
  CHECK_RESULT(get(npu().driver, nullptr), ERROR_INVALID_NULL_POINTER);
}

TEST(the_last_error_in_words) {
  const char* text = nullptr;
  void* unused = nullptr;
  CHECK_RESULT(l0.ze_driver.pfnGetExtensionFunctionAddress(npu().driver, "nothing", &unused), ERROR_INVALID_ARGUMENT);
  OK(l0.ze_driver.pfnGetLastErrorDescription(npu().driver, &text));
  CHECK(std::strstr(text, "of this name") != nullptr);
  CHECK_RESULT(l0.ze_driver.pfnGetApiVersion(npu().driver, nullptr), ERROR_INVALID_NULL_POINTER);
  CHECK(std::strstr(text, "of this name") != nullptr);
  OK(l0.ze_driver.pfnGetLastErrorDescription(npu().driver, &text));
  CHECK(std::strcmp(text, "version is null") == 0);
}

TEST(functions_that_are_not_there) {
  const ze_context_handle_t context = check::make_context();
  CHECK_RESULT(l0.ze_context.pfnSystemBarrier(context, npu().device), ERROR_UNSUPPORTED_FEATURE);
  ze_bool_t answer = 7;
  CHECK_RESULT(l0.ze_device.pfnCanAccessPeer(npu().device, npu().device, &answer), ERROR_UNSUPPORTED_FEATURE);
  CHECK(answer == 7);
  CHECK_RESULT(l0.zes_device.pfnGetProperties(nullptr, nullptr), ERROR_UNSUPPORTED_FEATURE);
  CHECK_RESULT(l0.zet_metric_group.pfnGet(nullptr, nullptr, nullptr), ERROR_UNSUPPORTED_FEATURE);
  check::destroy(context);
}
