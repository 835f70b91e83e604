#include <dlfcn.h>
#include <link.h>

#include <climits>
#include <cstring>
#include <string_view>

#include "shared_library.hpp"

namespace platform {
namespace {

struct Search {
  std::string_view file;
  char path[PATH_MAX];
};

// Called by C: nothing may be thrown through it.
int compare(dl_phdr_info* info, size_t, void* argument) noexcept {
  auto& search = *static_cast<Search*>(argument);
  const std::string_view path = info->dlpi_name == nullptr ? "" : info->dlpi_name;
  const std::string_view file = path.substr(path.rfind('/') + 1);
  if (file.substr(0, search.file.size()) != search.file || path.size() >= sizeof search.path) {
    return 0;
  }
  search.path[path.copy(search.path, sizeof search.path)] = '\0';
  return 1;
}

}  // namespace

void* open_library(const char* name) noexcept { return dlopen(name, RTLD_LAZY | RTLD_LOCAL); }

std::string library_error() {
  const char* text = dlerror();
  return text == nullptr ? "" : text;
}

void* find_symbol(void* library, const char* name) noexcept { return dlsym(library, name); }

void* loaded_library(const char* name) noexcept { return dlopen(name, RTLD_LAZY | RTLD_NOLOAD); }

void* library_of(const void* address) noexcept {
  Dl_info info;
  return dladdr(address, &info) != 0 ? loaded_library(info.dli_fname) : nullptr;
}

std::string loaded_library_path(const char* file) {
  Search search{file, ""};
  dl_iterate_phdr(compare, &search);
  return search.path;
}

}  // namespace platform
