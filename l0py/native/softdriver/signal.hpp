// What hosts and workers wait for: submissions and events.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "result.hpp"

namespace softdriver {

// How work ended: null when all went well. Copies never throw.
using Outcome = std::shared_ptr<const Failure>;
Outcome failed(ze_result_t result, const char* text) noexcept;

// A flag with an outcome that threads can wait for. Waiting threads sleep; no lock is held while they do.
class Signal {
 public:
  void complete(const Outcome& outcome = nullptr) noexcept;
  void reset() noexcept;
  bool completed() const noexcept;

  // The outcome, or nothing when it did not come within `timeout` nanoseconds or `cancelled` became true.
  // UINT64_MAX waits without end. Who sets `cancelled` calls `wake` afterwards.
  std::optional<Outcome> wait(uint64_t timeout, const std::atomic<bool>& cancelled) const;
  void wake() noexcept;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool completed_ = false;
  Outcome outcome_;
};

inline constexpr uint64_t forever = UINT64_MAX;
// For waits that nothing cancels.
inline const std::atomic<bool> never{false};

// The result that a wait function answers: SUCCESS or NOT_READY; a failure is thrown.
ze_result_t answer(const std::optional<Outcome>& outcome);

}  // namespace softdriver
