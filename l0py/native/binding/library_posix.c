#define _GNU_SOURCE
#include "library.cdef.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

uintptr_t l0_library_open(const char* path, int only_if_loaded) {
  int flags = RTLD_LAZY | RTLD_LOCAL | (only_if_loaded ? RTLD_NOLOAD : 0);
  return (uintptr_t)dlopen(path, flags);
}

const char* l0_library_error(void) {
  const char* text = dlerror();
  return text != NULL ? text : "";
}

void l0_library_close(uintptr_t library) { dlclose((void*)library); }

uintptr_t l0_library_symbol(uintptr_t library, const char* name) { return (uintptr_t)dlsym((void*)library, name); }

int l0_library_path(uintptr_t library, char* buffer, size_t size) {
  struct link_map* map = NULL;
  if (dlinfo((void*)library, RTLD_DI_LINKMAP, &map) != 0 || map == NULL || strlen(map->l_name) >= size) {
    return 0;
  }
  strcpy(buffer, map->l_name);
  return 1;
}
