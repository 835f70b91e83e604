#include "event.hpp"

#include "command_list.hpp"
#include "device.hpp"
#include "softdriver_functions.hpp"

namespace softdriver {
namespace {

constexpr uint32_t known_pool_flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE | ZE_EVENT_POOL_FLAG_IPC |
                                      ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP | ZE_EVENT_POOL_FLAG_KERNEL_MAPPED_TIMESTAMP;
constexpr uint32_t known_scopes = ZE_EVENT_SCOPE_FLAG_SUBDEVICE | ZE_EVENT_SCOPE_FLAG_DEVICE | ZE_EVENT_SCOPE_FLAG_HOST;

class ResetEvent final : public Command {
 public:
  explicit ResetEvent(std::shared_ptr<Event> event) : event_(std::move(event)) {}
  void run() override { event_->signal.reset(); }

 private:
  const std::shared_ptr<Event> event_;
};

}  // namespace

EventPool::EventPool(std::shared_ptr<Context> context, const ze_event_pool_desc_t& desc)
    : Object(kind_of),
      context(std::move(context)),
      flags(desc.flags),
      places(desc.count, ZE_RESULT_ERROR_INVALID_ARGUMENT) {}

Event::Event(std::shared_ptr<EventPool> pool, const ze_event_desc_t& desc)
    : Object(kind_of), pool(std::move(pool)), index(desc.index), signal_scope(desc.signal), wait_scope(desc.wait) {}

ze_result_t Event::host_wait(uint64_t timeout) const {
  const auto outcome = signal.wait(timeout, abandoned_);
  if (!outcome && abandoned_) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "event was destroyed while it was waited for");
  }
  return answer(outcome);
}

void Event::abandon() noexcept {
  abandoned_ = true;
  if (!home.left()) {
    signal.wake();
  }
}

std::shared_ptr<Event> find_own_event(ze_event_handle_t event) {
  auto found = find<Event>(event);
  found->home.require();
  return found;
}

ze_result_t api::zeEventPoolCreate(ze_context_handle_t context, const ze_event_pool_desc_t* desc, uint32_t device_count,
                                   ze_device_handle_t* devices, ze_event_pool_handle_t* pool) {
  auto owner = find<Context>(context);
  require(desc, "desc");
  require(pool, "phEventPool");
  require_stype(desc->stype, ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, "desc");
  require_flags(desc->flags, known_pool_flags, "desc.flags");
  if (desc->count == 0) {
    throw Failure(ZE_RESULT_ERROR_INVALID_SIZE, "an event pool of no events");
  }
  if (device_count > 0 && devices == nullptr) {
    throw Failure(ZE_RESULT_ERROR_INVALID_SIZE, "phDevices is null but numDevices is not 0");
  }
  for (uint32_t i = 0; i < device_count; ++i) {
    find<Device>(devices[i]);
  }
  *pool = publish(std::make_shared<EventPool>(std::move(owner), *desc));
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeEventPoolDestroy(ze_event_pool_handle_t pool) {
  retire<EventPool>(pool);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeEventPoolGetContextHandle(ze_event_pool_handle_t pool, ze_context_handle_t* context) {
  const auto found = find<EventPool>(pool);
  require(context, "phContext") = static_cast<ze_context_handle_t>(found->context->handle());
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeEventPoolGetFlags(ze_event_pool_handle_t pool, ze_event_pool_flags_t* flags) {
  const auto found = find<EventPool>(pool);
  require(flags, "pFlags") = found->flags;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeEventCreate(ze_event_pool_handle_t pool, const ze_event_desc_t* desc, ze_event_handle_t* event) {
  auto owner = find<EventPool>(pool);
  require(desc, "desc");
  require(event, "phEvent");
  require_stype(desc->stype, ZE_STRUCTURE_TYPE_EVENT_DESC, "desc");
  require_flags(desc->signal, known_scopes, "desc.signal");
  require_flags(desc->wait, known_scopes, "desc.wait");
  *event = publish_at(owner->places, desc->index, std::make_shared<Event>(owner, *desc));
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeEventDestroy(ze_event_handle_t event) {
  auto gone = retire<Event>(event);
  gone->abandon();
  gone->pool->places.give_back(gone->index);
  gone->home.release(gone);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeEventHostSignal(ze_event_handle_t event) {
  find_own_event(event)->signal.complete();
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeEventHostReset(ze_event_handle_t event) {
  find_own_event(event)->signal.reset();
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeEventHostSynchronize(ze_event_handle_t event, uint64_t timeout) {
  return find_own_event(event)->host_wait(timeout);
}

ze_result_t api::zeEventQueryStatus(ze_event_handle_t event) {
  return answer(find_own_event(event)->signal.wait(0, never));
}

ze_result_t api::zeEventGetEventPool(ze_event_handle_t event, ze_event_pool_handle_t* pool) {
  const auto found = find<Event>(event);
  require(pool, "phEventPool") = static_cast<ze_event_pool_handle_t>(found->pool->handle());
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeEventGetSignalScope(ze_event_handle_t event, ze_event_scope_flags_t* scope) {
  const auto found = find<Event>(event);
  require(scope, "pSignalScope") = found->signal_scope;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeEventGetWaitScope(ze_event_handle_t event, ze_event_scope_flags_t* scope) {
  const auto found = find<Event>(event);
  require(scope, "pWaitScope") = found->wait_scope;
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandListAppendSignalEvent(ze_command_list_handle_t list, ze_event_handle_t event) {
  const auto found = find<CommandList>(list);
  find<Event>(event);
  found->append(nullptr, event, 0, nullptr);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandListAppendWaitOnEvents(ze_command_list_handle_t list, uint32_t count,
                                                 ze_event_handle_t* events) {
  const auto found = find<CommandList>(list);
  require(events, "phEvents");
  if (count == 0) {
    throw Failure(ZE_RESULT_ERROR_INVALID_SIZE, "no events to wait on");
  }
  found->append(nullptr, nullptr, count, events);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandListAppendEventReset(ze_command_list_handle_t list, ze_event_handle_t event) {
  const auto found = find<CommandList>(list);
  found->append(std::make_shared<ResetEvent>(find_own_event(event)), nullptr, 0, nullptr);
  return ZE_RESULT_SUCCESS;
}

}  // namespace softdriver
