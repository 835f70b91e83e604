// Fences: what the host waits for after it gave lists to a queue.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "fork.hpp"
#include "object.hpp"
#include "signal.hpp"

namespace softdriver {

class Fence final : public Object {
 public:
  using Handle = ze_fence_handle_t;
  static constexpr Kind kind_of = Kind::fence;
  // `queue`: the handle of the queue that it may be given to.
  Fence(uintptr_t queue, bool signaled);

  // From now on the fence tells of this submission.
  void arm(std::shared_ptr<Signal> submission);
  // NOT_READY at once when nothing was submitted.
  ze_result_t wait(uint64_t timeout) const;
  // Back to "nothing submitted"; a submission that is still in flight stays.
  void reset();
  // The handle is gone: hosts stop waiting.
  void abandon() noexcept;

  const Home home;
  const uintptr_t queue;

 private:
  std::shared_ptr<Signal> submission() const;

  mutable std::mutex mutex_;
  std::shared_ptr<Signal> submission_;
  std::atomic<bool> abandoned_{false};
};

}  // namespace softdriver
