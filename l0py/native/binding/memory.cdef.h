/* Allocation into a new box of kind L0_MEMORY that `context` is the parent of, and that the garbage collector has
   already: an interrupt right after the call must not lose the memory. Read by the C compiler and by cffi.

   The box's `result` says how it went: unless it is 0 the box owns nothing. */
#pragma once

#include <stddef.h>

#include "handles.cdef.h"

/* zeMemAllocHost */
void l0_alloc_host(l0_box* box, l0_box* context, const ze_host_mem_alloc_desc_t* desc, size_t size, size_t alignment);
/* zeMemAllocDevice */
void l0_alloc_device(l0_box* box, l0_box* context, const ze_device_mem_alloc_desc_t* desc, size_t size,
                     size_t alignment, uintptr_t device);
/* zeMemAllocShared */
void l0_alloc_shared(l0_box* box, l0_box* context, const ze_device_mem_alloc_desc_t* device_desc,
                     const ze_host_mem_alloc_desc_t* host_desc, size_t size, size_t alignment, uintptr_t device);
