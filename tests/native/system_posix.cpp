#include <dirent.h>
#include <dlfcn.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "system.hpp"

namespace check {

void* open_library(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
  }
  return library;
}

void* find_symbol(void* library, const char* name) { return dlsym(library, name); }

size_t open_descriptors() {
  size_t count = 0;
  DIR* directory = opendir("/proc/self/fd");
  while (readdir(directory) != nullptr) {
    ++count;
  }
  closedir(directory);
  return count;
}

size_t mapped_blocks() {
  size_t count = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    count += line.find("memfd:l0py") != std::string::npos ? 1 : 0;
  }
  return count;
}

}  // namespace check
