#include "command_list.hpp"

#include "command_queue.hpp"
#include "device.hpp"
#include "event.hpp"
#include "softdriver_functions.hpp"
#include "worker.hpp"

namespace softdriver {
namespace {

constexpr uint32_t known_flags = ZE_COMMAND_LIST_FLAG_RELAXED_ORDERING | ZE_COMMAND_LIST_FLAG_MAXIMIZE_THROUGHPUT |
                                 ZE_COMMAND_LIST_FLAG_EXPLICIT_ONLY | ZE_COMMAND_LIST_FLAG_IN_ORDER |
                                 ZE_COMMAND_LIST_FLAG_EXP_CLONEABLE | ZE_COMMAND_LIST_FLAG_COPY_OFFLOAD_HINT;

const CommandList::Immediate& require_immediate(const CommandList& list) {
  if (list.worker == nullptr) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "not an immediate command list");
  }
  return list.immediate;
}

}  // namespace

void Command::set_argument(uint32_t, const void*, const uint32_t*) {
  throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "the command has no arguments");
}

CommandList::CommandList(std::shared_ptr<Context> context, const ze_command_list_desc_t& desc)
    : Object(kind_of),
      context(std::move(context)),
      ordinal(desc.commandQueueGroupOrdinal),
      is_mutable(find_next<void>(desc.pNext, ZE_STRUCTURE_TYPE_MUTABLE_COMMAND_LIST_EXP_DESC) != nullptr),
      flags(desc.flags),
      immediate(),
      worker() {}

CommandList::CommandList(std::shared_ptr<Context> context, const ze_command_queue_desc_t& desc)
    : Object(kind_of),
      context(std::move(context)),
      ordinal(desc.ordinal),
      is_mutable(false),
      flags(0),
      immediate{desc.index, desc.flags, desc.mode, desc.priority},
      worker(std::make_unique<Worker>()) {}

CommandList::~CommandList() = default;

void CommandList::append(std::shared_ptr<Command> command, ze_event_handle_t signal, uint32_t wait_count,
                         ze_event_handle_t* waits) {
  if (wait_count > 0 && waits == nullptr) {
    throw Failure(ZE_RESULT_ERROR_INVALID_SIZE, "phWaitEvents is null but numWaitEvents is not 0");
  }
  Step step{std::move(command), {}, signal != nullptr ? find_own_event(signal) : nullptr};
  for (uint32_t i = 0; i < wait_count; ++i) {
    step.waits.push_back(find_own_event(waits[i]));
  }
  if (worker != nullptr) {
    auto steps = std::make_shared<Steps>();
    steps->push_back(std::move(step));
    const auto submission = worker->submit({std::move(steps)});
    if (immediate.mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS) {
      answer(submission->wait(forever, never));
    }
    return;
  }
  const auto lock = home.lock(mutex_);
  if (closed_) {
    throw Failure(ZE_RESULT_ERROR_NOT_AVAILABLE, "the command list is closed");
  }
  open_steps_.push_back(std::move(step));
}

// Closing again changes nothing, and an immediate list is never closed.
void CommandList::close() {
  const auto lock = home.lock(mutex_);
  if (!closed_ && worker == nullptr) {
    steps_ = std::make_shared<const Steps>(std::move(open_steps_));
    open_steps_.clear();
    closed_ = true;
  }
}

void CommandList::reset() {
  const auto lock = home.lock(mutex_);
  steps_ = nullptr;
  open_steps_.clear();
  closed_ = false;
}

std::shared_ptr<const Steps> CommandList::closed_steps() const {
  if (worker != nullptr) {
    throw Failure(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE, "an immediate command list has no queue");
  }
  const auto lock = home.lock(mutex_);
  if (!closed_) {
    throw Failure(ZE_RESULT_ERROR_UNINITIALIZED, "the command list is not closed");
  }
  return steps_;
}

uint64_t CommandList::next_id() const {
  const auto lock = home.lock(mutex_);
  if (closed_) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "the command list is closed");
  }
  return open_steps_.size();
}

void CommandList::update(const std::vector<ArgumentUpdate>& updates) {
  const auto lock = home.lock(mutex_);
  Steps altered = closed_ ? *steps_ : open_steps_;
  std::vector<std::shared_ptr<Command>> clones(altered.size());
  for (const ArgumentUpdate& update : updates) {
    if (update.command >= altered.size()) {
      throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "no command " + std::to_string(update.command));
    }
    std::shared_ptr<Command>& clone = clones[update.command];
    std::shared_ptr<Command>& command = altered[update.command].command;
    if (clone == nullptr && command != nullptr) {
      clone = command->clone();
      command = clone;
    }
    if (clone == nullptr) {
      throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT,
                    "command " + std::to_string(update.command) + " has no arguments");
    }
    clone->set_argument(update.index, update.pointer, update.strides);
  }
  if (closed_) {
    steps_ = std::make_shared<const Steps>(std::move(altered));
  } else {
    open_steps_ = std::move(altered);
  }
}

ze_result_t api::zeCommandListCreate(ze_context_handle_t context, ze_device_handle_t device,
                                     const ze_command_list_desc_t* desc, ze_command_list_handle_t* list) {
  auto owner = find<Context>(context);
  find<Device>(device);
  require(desc, "desc");
  require(list, "phCommandList");
  require_stype(desc->stype, ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC, "desc");
  check_ordinal(desc->commandQueueGroupOrdinal);
  require_flags(desc->flags, known_flags, "desc.flags");
  *list = publish(std::make_shared<CommandList>(std::move(owner), *desc));
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandListCreateImmediate(ze_context_handle_t context, ze_device_handle_t device,
                                              const ze_command_queue_desc_t* desc, ze_command_list_handle_t* list) {
  auto owner = find<Context>(context);
  find<Device>(device);
  require(desc, "altdesc");
  require(list, "phCommandList");
  check_queue_desc(*desc);
  *list = publish(std::make_shared<CommandList>(std::move(owner), *desc));
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandListDestroy(ze_command_list_handle_t list) {
  auto gone = retire<CommandList>(list);
  if (gone->worker != nullptr) {
    gone->worker->finish();
  }
  gone->home.release(gone);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandListClose(ze_command_list_handle_t list) {
  find<CommandList>(list)->close();
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandListReset(ze_command_list_handle_t list) {
  find<CommandList>(list)->reset();
  return ZE_RESULT_SUCCESS;
}

// UNINITIALIZED for a regular list is what the NPU's driver answers.
ze_result_t api::zeCommandListHostSynchronize(ze_command_list_handle_t list, uint64_t timeout) {
  const auto found = find<CommandList>(list);
  if (found->worker == nullptr) {
    throw Failure(ZE_RESULT_ERROR_UNINITIALIZED, "not an immediate command list");
  }
  return found->worker->synchronize(timeout);
}

// Commands run in order and each ends before the next begins, so there is nothing more to wait for.
ze_result_t api::zeCommandListAppendBarrier(ze_command_list_handle_t list, ze_event_handle_t signal,
                                            uint32_t wait_count, ze_event_handle_t* waits) {
  find<CommandList>(list)->append(nullptr, signal, wait_count, waits);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandListGetDeviceHandle(ze_command_list_handle_t list, ze_device_handle_t* device) {
  find<CommandList>(list);
  require(device, "phDevice") = static_cast<ze_device_handle_t>(the_device().handle());
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandListGetContextHandle(ze_command_list_handle_t list, ze_context_handle_t* context) {
  const auto found = find<CommandList>(list);
  require(context, "phContext") = static_cast<ze_context_handle_t>(found->context->handle());
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandListGetOrdinal(ze_command_list_handle_t list, uint32_t* ordinal) {
  const auto found = find<CommandList>(list);
  require(ordinal, "pOrdinal") = found->ordinal;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandListGetFlags(ze_command_list_handle_t list, ze_command_list_flags_t* flags) {
  const auto found = find<CommandList>(list);
  require(flags, "pFlags") = found->flags;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandListIsImmediate(ze_command_list_handle_t list, ze_bool_t* is_immediate) {
  const auto found = find<CommandList>(list);
  require(is_immediate, "pIsImmediate") = found->worker != nullptr;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandListImmediateGetIndex(ze_command_list_handle_t list, uint32_t* index) {
  const auto found = find<CommandList>(list);
  require(index, "pIndex") = require_immediate(*found).index;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandListImmediateGetFlags(ze_command_list_handle_t list, ze_command_queue_flags_t* flags) {
  const auto found = find<CommandList>(list);
  require(flags, "pFlags") = require_immediate(*found).flags;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandListImmediateGetMode(ze_command_list_handle_t list, ze_command_queue_mode_t* mode) {
  const auto found = find<CommandList>(list);
  require(mode, "pMode") = require_immediate(*found).mode;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandListImmediateGetPriority(ze_command_list_handle_t list,
                                                   ze_command_queue_priority_t* priority) {
  const auto found = find<CommandList>(list);
  require(priority, "pPriority") = require_immediate(*found).priority;
  return ZE_RESULT_SUCCESS;
}

}  // namespace softdriver
