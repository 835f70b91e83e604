#include "signal.hpp"

#include <chrono>
#include <utility>

namespace softdriver {
namespace {

// Made while there is memory. Deliberately never destroyed: workers may fail while the process exits.
// NOLINTNEXTLINE(bugprone-throwing-static-initialization): a library that cannot be loaded is an answer too
const Outcome& no_memory =
    *new Outcome(std::make_shared<const Failure>(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, "out of memory"));

using Clock = std::chrono::steady_clock;

// Nothing when the clock cannot count that far.
std::optional<Clock::time_point> deadline(uint64_t timeout) {
  const Clock::time_point now = Clock::now();
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::time_point::max() - now).count();
  if (timeout >= static_cast<uint64_t>(left)) {
    return std::nullopt;
  }
  return now + std::chrono::nanoseconds(timeout);
}

}  // namespace

Outcome failed(ze_result_t result, const char* text) noexcept {
  try {
    return std::make_shared<const Failure>(result, text);
  } catch (const std::bad_alloc&) {
    return no_memory;
  }
}

void Signal::complete(const Outcome& outcome) noexcept {
  {
    std::lock_guard lock(mutex_);
    completed_ = true;
    outcome_ = outcome;
  }
  changed_.notify_all();
}

void Signal::reset() noexcept {
  std::lock_guard lock(mutex_);
  completed_ = false;
  outcome_ = nullptr;
}

bool Signal::completed() const noexcept {
  std::lock_guard lock(mutex_);
  return completed_;
}

std::optional<Outcome> Signal::wait(uint64_t timeout, const std::atomic<bool>& cancelled) const {
  std::unique_lock lock(mutex_);
  auto over = [&] { return completed_ || cancelled.load(); };
  if (!over() && timeout > 0) {
    if (auto until = deadline(timeout)) {
      changed_.wait_until(lock, *until, over);
    } else {
      changed_.wait(lock, over);
    }
  }
  return completed_ ? std::optional<Outcome>(outcome_) : std::nullopt;
}

void Signal::wake() noexcept {
  // Whoever has looked at its flag already sleeps when the lock can be had.
  {
    std::lock_guard lock(mutex_);
  }
  changed_.notify_all();
}

ze_result_t answer(const std::optional<Outcome>& outcome) {
  if (!outcome) {
    return ZE_RESULT_NOT_READY;
  }
  if (*outcome != nullptr) {
    throw Failure(**outcome);
  }
  return ZE_RESULT_SUCCESS;
}

}  // namespace softdriver
