#include "fence.hpp"

#include "command_queue.hpp"
#include "softdriver_functions.hpp"

namespace softdriver {

Fence::Fence(uintptr_t queue, bool signaled) : Object(kind_of), queue(queue) {
  if (signaled) {
    submission_ = std::make_shared<Signal>();
    submission_->complete();
  }
}

std::shared_ptr<Signal> Fence::submission() const {
  std::lock_guard lock(mutex_);
  return submission_;
}

void Fence::arm(std::shared_ptr<Signal> submission) {
  std::lock_guard lock(mutex_);
  submission_ = std::move(submission);
}

ze_result_t Fence::wait(uint64_t timeout) const {
  home.require();
  const auto waited_for = submission();
  if (waited_for == nullptr) {
    return ZE_RESULT_NOT_READY;
  }
  const auto outcome = waited_for->wait(timeout, abandoned_);
  if (!outcome && abandoned_) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "fence was destroyed while it was waited for");
  }
  return answer(outcome);
}

void Fence::reset() {
  const auto lock = home.lock(mutex_);
  if (submission_ != nullptr && submission_->completed()) {
    submission_ = nullptr;
  }
}

void Fence::abandon() noexcept {
  abandoned_ = true;
  if (!home.left()) {
    if (const auto waited_for = submission()) {
      waited_for->wake();
    }
  }
}

ze_result_t api::zeFenceCreate(ze_command_queue_handle_t queue, const ze_fence_desc_t* desc, ze_fence_handle_t* fence) {
  const auto owner = find<CommandQueue>(queue);
  require(desc, "desc");
  require(fence, "phFence");
  require_stype(desc->stype, ZE_STRUCTURE_TYPE_FENCE_DESC, "desc");
  require_flags(desc->flags, ZE_FENCE_FLAG_SIGNALED, "desc.flags");
  *fence = publish(std::make_shared<Fence>(owner->number, (desc->flags & ZE_FENCE_FLAG_SIGNALED) != 0));
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeFenceDestroy(ze_fence_handle_t fence) {
  auto gone = retire<Fence>(fence);
  gone->abandon();
  gone->home.release(gone);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeFenceHostSynchronize(ze_fence_handle_t fence, uint64_t timeout) {
  return find<Fence>(fence)->wait(timeout);
}

ze_result_t api::zeFenceQueryStatus(ze_fence_handle_t fence) { return find<Fence>(fence)->wait(0); }

ze_result_t api::zeFenceReset(ze_fence_handle_t fence) {
  find<Fence>(fence)->reset();
  return ZE_RESULT_SUCCESS;
}

}  // namespace softdriver
