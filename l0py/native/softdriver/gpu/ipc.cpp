// Memory for other processes, by handles that are passed as plain bytes.
#include <cstring>

#include "behaviour.hpp"
#include "context.hpp"
#include "device.hpp"
#include "exports.hpp"
#include "other_process.hpp"
#include "softdriver_functions.hpp"

namespace softdriver {
namespace {

constexpr uint32_t known_flags = ZE_IPC_MEMORY_FLAG_BIAS_CACHED | ZE_IPC_MEMORY_FLAG_BIAS_UNCACHED;

// What the bytes of a handle are. A descriptor says nothing in another process: older releases left it to programs to
// pass it on and to put their own number in; newer ones name the process, and fetch it from there.
struct Content {
  uint64_t descriptor;
  uint64_t offset;   // of the memory in what the descriptor is of
  uint32_t process;  // 0: the one that opens the handle
  uint32_t type;     // ze_memory_type_t
};
static_assert(sizeof(Content) <= sizeof(ze_ipc_mem_handle_t));

Content content_of(const ze_ipc_mem_handle_t& handle) {
  Content content;
  std::memcpy(&content, handle.data, sizeof content);
  return content;
}

ze_ipc_mem_handle_t handle_of(const Content& content) {
  ze_ipc_mem_handle_t handle{};
  std::memcpy(handle.data, &content, sizeof content);
  return handle;
}

#ifdef _WIN32
uint64_t number_of(SystemHandle handle) noexcept { return reinterpret_cast<uintptr_t>(handle); }
SystemHandle from_number(uint64_t number) noexcept { return reinterpret_cast<SystemHandle>(number); }
#else
uint64_t number_of(SystemHandle handle) noexcept { return static_cast<uint64_t>(handle); }
SystemHandle from_number(uint64_t number) noexcept { return static_cast<SystemHandle>(number); }
#endif

ze_ipc_mem_handle_t describe(const Allocation& block, SystemHandle exported) {
  return handle_of({number_of(exported), block.offset_in_export(), behaviour().opaque_ipc ? this_process() : 0,
                    static_cast<uint32_t>(block.type)});
}

void get_handle(ze_context_handle_t context, const void* address, ze_ipc_mem_handle_t* handle) {
  const auto owner = find<Context>(context);
  require(address, "ptr");
  auto& out = require(handle, "pIpcHandle");
  const auto block = owner->allocations.find(address);
  const bool pooled_interior = block != nullptr && block->pool != nullptr && block->base != address;
  if (block == nullptr || pooled_interior || block->origin == Origin::mapping) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "not an allocation of this context");
  }
  if (block->type == ZE_MEMORY_TYPE_SHARED && behaviour().opaque_ipc) {
    throw Failure(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "the driver has no handles of shared memory");
  }
  out = describe(*block, keep_export(block));
}

}  // namespace

ze_result_t api::zeMemGetIpcHandle(ze_context_handle_t context, const void* address, ze_ipc_mem_handle_t* handle) {
  get_handle(context, address, handle);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeMemGetIpcHandleWithProperties(ze_context_handle_t context, const void* address, void* next,
                                                 ze_ipc_mem_handle_t* handle) {
  const auto* wanted = static_cast<const ze_ipc_mem_handle_type_ext_desc_t*>(next);
  if (wanted != nullptr && wanted->stype != ZE_STRUCTURE_TYPE_IPC_MEM_HANDLE_TYPE_EXT_DESC) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "pNext is no description of a handle's type");
  }
  if (wanted != nullptr && (wanted->typeFlags & ZE_IPC_MEM_HANDLE_TYPE_FLAG_FABRIC_ACCESSIBLE) != 0) {
    throw Failure(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "there is no fabric");
  }
  get_handle(context, address, handle);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeMemOpenIpcHandle(ze_context_handle_t context, ze_device_handle_t device, ze_ipc_mem_handle_t handle,
                                    ze_ipc_memory_flags_t flags, void** address) {
  const auto owner = find<Context>(context);
  find<Device>(device);
  require_flags(flags, known_flags, "flags");
  void*& out = require(address, "pptr");
  const Content content = content_of(handle);
  const Descriptor source =
      take_from_process(content.process != 0 ? content.process : this_process(), from_number(content.descriptor));
  const size_t size = source.valid() ? memory_size(source.get()) : 0;
  const bool known_type = content.type == ZE_MEMORY_TYPE_HOST || content.type == ZE_MEMORY_TYPE_DEVICE ||
                          content.type == ZE_MEMORY_TYPE_SHARED;
  if (!known_type || content.offset >= size) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "the handle's memory is gone, or process " +
                                                        std::to_string(content.process) +
                                                        " does not let this one have it (see PR_SET_PTRACER)");
  }
  Request request{static_cast<ze_memory_type_t>(content.type), size, 0};
  request.has_import = true;
  request.import = source.get();
  out = static_cast<std::byte*>(add_block(*owner, make_block(request))) + content.offset;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeMemCloseIpcHandle(ze_context_handle_t context, const void* address) {
  free_memory(*find<Context>(context), const_cast<void*>(address));
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeMemPutIpcHandle(ze_context_handle_t context, ze_ipc_mem_handle_t handle) {
  find<Context>(context);
  put_export(from_number(content_of(handle).descriptor));
  return ZE_RESULT_SUCCESS;
}

// Only for a descriptor that this driver gave out itself.
ze_result_t api::zeMemGetIpcHandleFromFileDescriptorExp(ze_context_handle_t context, uint64_t number,
                                                        ze_ipc_mem_handle_t* handle) {
  find<Context>(context);
  auto& out = require(handle, "pIpcHandle");
  const auto block = find_export(from_number(number));
  if (block == nullptr) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "not a descriptor that this driver gave out");
  }
  out = describe(*block, from_number(number));
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeMemGetFileDescriptorFromIpcHandleExp(ze_context_handle_t context, ze_ipc_mem_handle_t handle,
                                                        uint64_t* number) {
  find<Context>(context);
  uint64_t& out = require(number, "pHandle");
  const uint64_t descriptor = content_of(handle).descriptor;
  if (find_export(from_number(descriptor)) == nullptr) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "not a handle that this driver gave out");
  }
  out = descriptor;
  return ZE_RESULT_SUCCESS;
}

}  // namespace softdriver
