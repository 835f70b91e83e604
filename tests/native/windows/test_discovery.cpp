// Where the loader looks for drivers on Windows: the environment, and the driver settings of devices.
#include <cstdlib>
#include <cstring>
#include <string>

#include "check.hpp"
#include "system.hpp"
#include "windows_api.hpp"

#include <initguid.h>

#include <devguid.h>
#include <setupapi.h>

namespace {

template <class Function>
Function loader_function(const char* name) {
  static void* const loader = check::open_library(std::getenv("L0PY_TEST_LOADER"));
  auto found = reinterpret_cast<Function>(check::find_symbol(loader, name));
  CHECK(found != nullptr);
  return found;
}

// How many drivers of these types there are; the result where there is none.
ze_result_t count_drivers(uint32_t flags, uint32_t* count) {
  ze_init_driver_type_desc_t desc{ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC, nullptr, flags};
  *count = 0;
  return loader_function<ze_pfnInitDrivers_t>("zeInitDrivers")(count, nullptr, &desc);
}

// A device of some class, with what its driver's package would have written.
class Device {
 public:
  Device(const GUID& device_class, const wchar_t* value, const std::string& library) {
    devices_ = SetupDiCreateDeviceInfoList(&device_class, nullptr);
    device_.cbSize = sizeof device_;
    CHECK(SetupDiCreateDeviceInfoW(devices_, L"L0PYTEST", &device_class, nullptr, nullptr, DICD_GENERATE_ID, &device_));
    CHECK(SetupDiRegisterDeviceInfo(devices_, &device_, 0, nullptr, nullptr, nullptr));
    const HKEY key = SetupDiCreateDevRegKeyW(devices_, &device_, DICS_FLAG_GLOBAL, 0, DIREG_DRV, nullptr, nullptr);
    CHECK(key != INVALID_HANDLE_VALUE);
    const std::wstring path(library.begin(), library.end());
    const auto* bytes = reinterpret_cast<const BYTE*>(path.c_str());
    const auto size = static_cast<DWORD>((path.size() + 1) * sizeof(wchar_t));
    CHECK(RegSetValueExW(key, value, 0, REG_SZ, bytes, size) == ERROR_SUCCESS);
    RegCloseKey(key);
  }

  ~Device() {
    CHECK(SetupDiDeleteDevRegKey(devices_, &device_, DICS_FLAG_GLOBAL, 0, DIREG_DRV));
    CHECK(SetupDiRemoveDevice(devices_, &device_));
    SetupDiDestroyDeviceInfoList(devices_);
  }

 private:
  HDEVINFO devices_;
  SP_DEVINFO_DATA device_{};
};

constexpr GUID compute_accelerators = {0xf01a9d53, 0x3ff6, 0x48d2, {0x9f, 0x97, 0xc8, 0xa7, 0x00, 0x4b, 0xe1, 0x0c}};

// One of several drivers, with a context for its one device.
struct Side {
  explicit Side(ze_device_type_t type) {
    ze_driver_handle_t drivers[2] = {};
    uint32_t count = 2;
    OK(loader_function<ze_pfnDriverGet_t>("zeDriverGet")(&count, drivers));
    for (const ze_driver_handle_t driver : drivers) {
      ze_device_handle_t device = nullptr;
      uint32_t devices = 1;
      OK(loader_function<ze_pfnDeviceGet_t>("zeDeviceGet")(driver, &devices, &device));
      ze_device_properties_t properties{};
      properties.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES;
      OK(loader_function<ze_pfnDeviceGetProperties_t>("zeDeviceGetProperties")(device, &properties));
      if (properties.type == type) {
        const ze_context_desc_t desc{ZE_STRUCTURE_TYPE_CONTEXT_DESC, nullptr, 0};
        OK(loader_function<ze_pfnContextCreate_t>("zeContextCreate")(driver, &desc, &context));
      }
    }
  }

  char* allocate(const void* chained) const {
    const auto desc = check::host_desc(chained);
    void* made = nullptr;
    OK(loader_function<ze_pfnMemAllocHost_t>("zeMemAllocHost")(context, &desc, 4096, 0, &made));
    return static_cast<char*>(made);
  }

  void end(void* memory) const {
    OK(loader_function<ze_pfnMemFree_t>("zeMemFree")(context, memory));
    OK(loader_function<ze_pfnContextDestroy_t>("zeContextDestroy")(context));
  }

  ze_context_handle_t context = nullptr;
};

const char* npu_library() { return std::getenv("L0PY_TEST_DRIVER"); }
const char* gpu_library() { return std::getenv("L0PY_TEST_GPU"); }

void use_both_drivers() {
  const std::string both = std::string(npu_library()) + "," + gpu_library();
  SetEnvironmentVariableA("ZE_ENABLE_ALT_DRIVERS", both.c_str());  // as Python does; this C library has it not
}

}  // namespace

// Each runs in a process of its own: a loader looks for drivers once.

TEST(from_alternatives) {
  use_both_drivers();
  uint32_t count = 0;
  OK(count_drivers(ZE_INIT_DRIVER_TYPE_FLAG_GPU | ZE_INIT_DRIVER_TYPE_FLAG_NPU, &count));
  CHECK(count == 2);
}

TEST(from_registry) {
  const Device npu(compute_accelerators, L"LevelZeroDriverPath", npu_library());
  const Device same(compute_accelerators, L"LevelZeroDriverPath", npu_library());
  const Device gpu(GUID_DEVCLASS_DISPLAY, L"LevelZeroStagedDriverPath", gpu_library());
  const Device other(GUID_DEVCLASS_MOUSE, L"LevelZeroDriverPath", "Z:\\nowhere\\driver.dll");
  uint32_t count = 0;
  OK(count_drivers(ZE_INIT_DRIVER_TYPE_FLAG_GPU | ZE_INIT_DRIVER_TYPE_FLAG_NPU, &count));
  CHECK(count == 2);
}

TEST(from_nothing) {
  uint32_t count = 0;
  CHECK_RESULT(count_drivers(ZE_INIT_DRIVER_TYPE_FLAG_GPU | ZE_INIT_DRIVER_TYPE_FLAG_NPU, &count), ERROR_UNINITIALIZED);
}

TEST(from_gpu_to_npu) {
  use_both_drivers();
  uint32_t count = 0;
  OK(count_drivers(ZE_INIT_DRIVER_TYPE_FLAG_GPU | ZE_INIT_DRIVER_TYPE_FLAG_NPU, &count));
  const Side gpu(ZE_DEVICE_TYPE_GPU);
  const Side npu(ZE_DEVICE_TYPE_VPU);
  constexpr auto opaque = ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_WIN32;
  const ze_external_memory_export_desc_t wish{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC, nullptr, opaque};
  char* drawn = gpu.allocate(&wish);
  ze_external_memory_export_win32_handle_t query{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_WIN32, nullptr, opaque,
                                                 nullptr};
  ze_memory_allocation_properties_t properties{};
  properties.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES;
  properties.pNext = &query;
  OK(loader_function<ze_pfnMemGetAllocProperties_t>("zeMemGetAllocProperties")(gpu.context, drawn, &properties,
                                                                               nullptr));
  const ze_external_memory_import_win32_handle_t import{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_WIN32, nullptr, opaque,
                                                        query.handle, nullptr};
  char* read = npu.allocate(&import);
  CHECK(drawn != nullptr && read != nullptr && read != drawn);
  std::strcpy(drawn, "drawn by the GPU");
  CHECK(std::strcmp(read, "drawn by the GPU") == 0);
  std::strcpy(read, "read by the NPU");
  CHECK(std::strcmp(drawn, "read by the NPU") == 0);
  gpu.end(drawn);
  CHECK(std::strcmp(read, "read by the NPU") == 0);
  npu.end(read);
}
