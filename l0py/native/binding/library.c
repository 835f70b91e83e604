#include "library.cdef.h"

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

int l0_bind(uintptr_t library) {
  int found = 0;
  if (bound) {
    return -1;
  }
  bound = 1;
  for (int i = 0; i < l0_entry_count; ++i) {
    l0_entry_points[i] = (void*)l0_library_symbol(library, l0_entry_names[i]);
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
