// The loader under test: its functions, and the drivers that it shall find.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "check.hpp"

template <class Function>
Function loader_function(const char* name) {
  static void* const loader = dlopen(std::getenv("L0PY_TEST_LOADER"), RTLD_NOW | RTLD_LOCAL);
  CHECK(loader != nullptr);
  auto found = reinterpret_cast<Function>(dlsym(loader, name));
  CHECK(found != nullptr);
  return found;
}
#define LOADER(pfn, name) loader_function<pfn>(#name)

inline const char* path_of(const char* variable) { return std::getenv(variable); }

inline void use_drivers(const char* first, const char* second = nullptr) {
  const std::string list = std::string(first) + (second == nullptr ? "" : "," + std::string(second));
  setenv("ZE_ENABLE_ALT_DRIVERS", list.c_str(), 1);
}

inline ze_result_t init(ze_init_flags_t flags = 0) { return LOADER(ze_pfnInit_t, zeInit)(flags); }

inline ze_result_t init_drivers(uint32_t flags, uint32_t* count, ze_driver_handle_t* drivers) {
  ze_init_driver_type_desc_t desc{ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC, nullptr, flags};
  return LOADER(ze_pfnInitDrivers_t, zeInitDrivers)(count, drivers, &desc);
}

// How often a driver made from second_driver.c was asked to initialize.
inline int inits_of(const char* driver) {
  void* library = dlopen(driver, RTLD_NOW | RTLD_NOLOAD);
  CHECK(library != nullptr);
  const int inits = reinterpret_cast<int (*)()>(dlsym(library, "second_driver_inits"))();
  dlclose(library);
  return inits;
}
