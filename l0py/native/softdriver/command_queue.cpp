#include "command_queue.hpp"

#include "behaviour.hpp"
#include "device.hpp"
#include "fence.hpp"
#include "softdriver_functions.hpp"

namespace softdriver {
namespace {

constexpr uint32_t known_flags =
    ZE_COMMAND_QUEUE_FLAG_EXPLICIT_ONLY | ZE_COMMAND_QUEUE_FLAG_IN_ORDER | ZE_COMMAND_QUEUE_FLAG_COPY_OFFLOAD_HINT;

}  // namespace

void check_ordinal(uint32_t ordinal) {
  if (ordinal >= identity.queue_group_count) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "no command queue group " + std::to_string(ordinal));
  }
}

void check_queue_desc(const ze_command_queue_desc_t& desc) {
  require_stype(desc.stype, ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC, "desc");
  check_ordinal(desc.ordinal);
  require_flags(desc.flags, known_flags, "desc.flags");
  if (desc.mode > ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ENUMERATION, "desc.mode is unknown");
  }
  if (desc.priority > ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ENUMERATION, "desc.priority is unknown");
  }
  check_queue_extensions(desc);
}

CommandQueue::CommandQueue(std::shared_ptr<Context> context, const ze_command_queue_desc_t& desc)
    : Object(kind_of),
      context(std::move(context)),
      ordinal(desc.ordinal),
      index(desc.index),
      flags(desc.flags),
      mode(desc.mode),
      priority(desc.priority) {}

ze_result_t api::zeCommandQueueCreate(ze_context_handle_t context, ze_device_handle_t device,
                                      const ze_command_queue_desc_t* desc, ze_command_queue_handle_t* queue) {
  auto owner = find<Context>(context);
  find<Device>(device);
  require(desc, "desc");
  require(queue, "phCommandQueue");
  check_queue_desc(*desc);
  *queue = publish(std::make_shared<CommandQueue>(std::move(owner), *desc));
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandQueueDestroy(ze_command_queue_handle_t queue) {
  auto gone = retire<CommandQueue>(queue);
  gone->worker.finish();
  gone->worker.home.release(gone);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandQueueExecuteCommandLists(ze_command_queue_handle_t queue, uint32_t count,
                                                   ze_command_list_handle_t* lists, ze_fence_handle_t fence) {
  const auto target = find<CommandQueue>(queue);
  require(lists, "phCommandLists");
  if (count == 0) {
    throw Failure(ZE_RESULT_ERROR_INVALID_SIZE, "no command lists to execute");
  }
  std::vector<std::shared_ptr<const Steps>> work;
  work.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    work.push_back(find<CommandList>(lists[i])->closed_steps());
  }
  std::shared_ptr<Fence> told;
  if (fence != nullptr) {
    told = find<Fence>(fence);
    if (told->queue != target->number) {
      throw Failure(ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, "the fence belongs to another queue");
    }
  }
  const auto submission = target->worker.submit(std::move(work));
  if (told != nullptr) {
    told->arm(submission);
  }
  if (target->mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS) {
    return answer(submission->wait(forever, never));
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandQueueSynchronize(ze_command_queue_handle_t queue, uint64_t timeout) {
  return find<CommandQueue>(queue)->worker.synchronize(timeout);
}

ze_result_t api::zeCommandQueueGetOrdinal(ze_command_queue_handle_t queue, uint32_t* ordinal) {
  const auto found = find<CommandQueue>(queue);
  require(ordinal, "pOrdinal") = found->ordinal;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandQueueGetIndex(ze_command_queue_handle_t queue, uint32_t* index) {
  const auto found = find<CommandQueue>(queue);
  require(index, "pIndex") = found->index;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandQueueGetFlags(ze_command_queue_handle_t queue, ze_command_queue_flags_t* flags) {
  const auto found = find<CommandQueue>(queue);
  require(flags, "pFlags") = found->flags;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandQueueGetMode(ze_command_queue_handle_t queue, ze_command_queue_mode_t* mode) {
  const auto found = find<CommandQueue>(queue);
  require(mode, "pMode") = found->mode;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandQueueGetPriority(ze_command_queue_handle_t queue, ze_command_queue_priority_t* priority) {
  const auto found = find<CommandQueue>(queue);
  require(priority, "pPriority") = found->priority;
  return ZE_RESULT_SUCCESS;
}

}  // namespace softdriver
