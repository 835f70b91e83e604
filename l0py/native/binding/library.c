#define _GNU_SOURCE
#include "library.cdef.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "binding_api.h"

_Atomic(ze_result_t) l0_refusal = ZE_RESULT_SUCCESS;
static int bound = 0;

ze_result_t l0_remember_init(ze_result_t result) {
  if (result != ZE_RESULT_SUCCESS) {
    l0_refusal = result;
  }
  return result;
}

int l0_init_failure(void) { return (int)l0_refusal; }

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

int l0_bind(uintptr_t library) {
  int found = 0;
  if (bound) {
    return -1;
  }
  bound = 1;
  for (int i = 0; i < l0_entry_count; ++i) {
    l0_entry_points[i] = dlsym((void*)library, l0_entry_names[i]);
    found += l0_entry_points[i] != NULL;
  }
  return found;
}

int l0_has(const char* name) {
  for (int i = 0; i < l0_entry_count; ++i) {
    if (strcmp(l0_entry_names[i], name) == 0) {
      return l0_entry_points[i] != NULL;
    }
  }
  return -1;
}
