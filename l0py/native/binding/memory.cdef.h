/* Allocation and ownership in one call each. Read by the C compiler and by cffi.

   The answer's `result` says how it went: unless it is 0 the box owns nothing and only wants to be dropped.
   NULL when there is no memory for the box itself. */
#pragma once

#include <stddef.h>

#include "handles.cdef.h"

/* zeMemAllocHost */
l0_box* l0_alloc_host(l0_box* context, const ze_host_mem_alloc_desc_t* desc, size_t size, size_t alignment);
/* zeMemAllocDevice */
l0_box* l0_alloc_device(l0_box* context, const ze_device_mem_alloc_desc_t* desc, size_t size, size_t alignment,
                        uintptr_t device);
/* zeMemAllocShared */
l0_box* l0_alloc_shared(l0_box* context, const ze_device_mem_alloc_desc_t* device_desc,
                        const ze_host_mem_alloc_desc_t* host_desc, size_t size, size_t alignment, uintptr_t device);
