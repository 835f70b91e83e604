/* Handles for C consumers, in PyCapsules. Read by the C compiler and by cffi. Python objects are given by their id. */
#pragma once

#include <stdint.h>

/* What a capsule named "l0py.ze_memory" points to. */
typedef struct l0_ze_memory {
  uint64_t version; /* 1 */
  uint64_t context; /* ze_context_handle_t */
  uint64_t address;
  uint64_t size;  /* in bytes */
  uint64_t flags; /* L0_ZE_... */
} l0_ze_memory;

enum { L0_ZE_DEVICE_ONLY = 1, L0_ZE_READ_ONLY = 2, L0_ZE_SHARED = 4 };

/* Append a capsule to a list; false when there is no memory. `owner` lives as long as the capsule.
   "l0py.ze_context_handle" points at the context itself, "l0py.ze_memory" at a copy of the structure. */
int l0_capsule_of_context(uintptr_t list, uintptr_t owner, uintptr_t context);
int l0_capsule_of_memory(uintptr_t list, uintptr_t owner, const l0_ze_memory* memory);
/* The name of a capsule; NULL for other objects and for capsules without one. */
const char* l0_capsule_name(uintptr_t object);
/* What a capsule of that name points to; NULL when it is none. */
const void* l0_capsule_pointer(uintptr_t object, const char* name);
