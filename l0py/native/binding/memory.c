#include "binding_api.h"

#include "memory.cdef.h"

static void answered(l0_box* box, ze_result_t result) {
  box->result = (int32_t)result;
  if (result != ZE_RESULT_SUCCESS) {
    box->handle = 0; /* whatever a failing driver left there */
    l0_box_close(box);
  }
}

void l0_alloc_host(l0_box* box, l0_box* context, const ze_host_mem_alloc_desc_t* desc, size_t size, size_t alignment) {
  if (box->result == ZE_RESULT_SUCCESS) {
    answered(box, zeMemAllocHost(context->handle, desc, size, alignment, &box->handle));
  }
}

void l0_alloc_device(l0_box* box, l0_box* context, const ze_device_mem_alloc_desc_t* desc, size_t size,
                     size_t alignment, uintptr_t device) {
  if (box->result == ZE_RESULT_SUCCESS) {
    answered(box, zeMemAllocDevice(context->handle, desc, size, alignment, device, &box->handle));
  }
}

void l0_alloc_shared(l0_box* box, l0_box* context, const ze_device_mem_alloc_desc_t* device_desc,
                     const ze_host_mem_alloc_desc_t* host_desc, size_t size, size_t alignment, uintptr_t device) {
  if (box->result == ZE_RESULT_SUCCESS) {
    answered(box, zeMemAllocShared(context->handle, device_desc, host_desc, size, alignment, device, &box->handle));
  }
}
