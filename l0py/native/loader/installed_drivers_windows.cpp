#include <algorithm>

#include "installed_drivers.hpp"
#include "windows_text.hpp"

#include <initguid.h>

#include <devguid.h>
#include <setupapi.h>

namespace {

// The class of NPUs, which older headers lack.
constexpr GUID compute_accelerators = {0xf01a9d53, 0x3ff6, 0x48d2, {0x9f, 0x97, 0xc8, 0xa7, 0x00, 0x4b, 0xe1, 0x0c}};

// A driver's package writes the path of its library beside each of its devices' driver settings; a staged one is used
// after the next start and counts where there is no other.
constexpr const wchar_t* path_values[] = {L"LevelZeroDriverPath", L"LevelZeroStagedDriverPath"};

// Empty when there is none.
std::string text_value(HKEY key, const wchar_t* name) {
  DWORD bytes = 0;
  if (RegGetValueW(key, nullptr, name, RRF_RT_REG_SZ, nullptr, nullptr, &bytes) != ERROR_SUCCESS) {
    return "";
  }
  std::wstring text(bytes / sizeof(wchar_t), L'\0');
  if (RegGetValueW(key, nullptr, name, RRF_RT_REG_SZ, nullptr, text.data(), &bytes) != ERROR_SUCCESS) {
    return "";
  }
  return platform::narrow(text.c_str());  // up to the final zero
}

void add_paths(HKEY key, std::vector<std::string>& found) {
  for (const wchar_t* name : path_values) {
    std::string path = text_value(key, name);
    if (path.empty()) {
      continue;
    }
    if (std::find(found.begin(), found.end(), path) == found.end()) {  // several devices have one driver
      found.push_back(std::move(path));
    }
    return;
  }
}

void add_drivers(const GUID& device_class, std::vector<std::string>& found) {
  const HDEVINFO devices = SetupDiGetClassDevsW(&device_class, nullptr, nullptr, DIGCF_PRESENT);
  if (devices == INVALID_HANDLE_VALUE) {
    return;
  }
  SP_DEVINFO_DATA device{};
  device.cbSize = sizeof device;
  for (DWORD index = 0; SetupDiEnumDeviceInfo(devices, index, &device) != 0; ++index) {
    const HKEY key = SetupDiOpenDevRegKey(devices, &device, DICS_FLAG_GLOBAL, 0, DIREG_DRV, KEY_QUERY_VALUE);
    if (key != INVALID_HANDLE_VALUE) {
      add_paths(key, found);
      RegCloseKey(key);
    }
  }
  SetupDiDestroyDeviceInfoList(devices);
}

}  // namespace

std::vector<std::string> installed_drivers() {
  std::vector<std::string> found;
  add_drivers(GUID_DEVCLASS_DISPLAY, found);
  add_drivers(compute_accelerators, found);
  return found;
}
