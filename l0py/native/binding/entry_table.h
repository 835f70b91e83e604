/* The table of entry points that the generated wrappers call through. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>

#include "level_zero_integers.h"

extern void* l0_entry_points[];
extern const char* const l0_entry_names[];
extern const int l0_entry_count;

/* Not SUCCESS once zeInit failed: old loaders have then unloaded the driver, and any further call would crash. */
extern _Atomic(ze_result_t) l0_refusal;
ze_result_t l0_remember_init(ze_result_t result);
