#include "shared_library.hpp"
#include "windows_text.hpp"

namespace platform {
namespace {

// Whoever closes the library that this is a part of: its threads may still run then.
bool stay_loaded() noexcept {
  HMODULE module = nullptr;
  return GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_PIN | GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS,
                            reinterpret_cast<const wchar_t*>(&stay_loaded), &module) != 0;
}
[[maybe_unused]] const bool stays = stay_loaded();

bool is_absolute(const std::string& path) noexcept { return path.find(':') != path.npos || path.rfind("\\\\", 0) == 0; }

}  // namespace

void* open_library(const char* name) noexcept try {
  const std::string path = name;
  const DWORD beside = is_absolute(path) ? LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR : 0;
  return LoadLibraryExW(widen(path).c_str(), nullptr, beside | LOAD_LIBRARY_SEARCH_SYSTEM32);
} catch (const std::bad_alloc&) {
  return nullptr;
}

std::string library_error() { return error_text(GetLastError()); }

void* find_symbol(void* library, const char* name) noexcept {
  return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(library), name));
}

void* loaded_library(const char* name) noexcept { return GetModuleHandleA(name); }

void* library_of(const void* address) noexcept {
  HMODULE module = nullptr;
  GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT | GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS,
                     static_cast<const wchar_t*>(address), &module);
  return module;
}

std::string loaded_library_path(const char* file) {
  const HMODULE module = GetModuleHandleA(file);
  if (module == nullptr) {
    return "";
  }
  std::wstring path(MAX_PATH, L'\0');
  for (;;) {
    const DWORD length = GetModuleFileNameW(module, path.data(), static_cast<DWORD>(path.size()));
    if (length < path.size()) {
      return narrow(path.substr(0, length));
    }
    path.resize(2 * path.size());
  }
}

}  // namespace platform
