// Event pools and their events.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "context.hpp"
#include "object.hpp"
#include "signal.hpp"

namespace softdriver {

class EventPool final : public Object {
 public:
  using Handle = ze_event_pool_handle_t;
  static constexpr Kind kind_of = Kind::event_pool;
  EventPool(std::shared_ptr<Context> context, const ze_event_pool_desc_t& desc);

  // Takes an index for one event. Past the end or in use: INVALID_ARGUMENT.
  void take(uint32_t index);
  void give_back(uint32_t index);

  const std::shared_ptr<Context> context;
  const ze_event_pool_flags_t flags;
  const uint32_t count;

 private:
  std::mutex mutex_;
  std::unordered_set<uint32_t> taken_;
};

class Event final : public Object {
 public:
  using Handle = ze_event_handle_t;
  static constexpr Kind kind_of = Kind::event;
  Event(std::shared_ptr<EventPool> pool, const ze_event_desc_t& desc);

  ze_result_t host_wait(uint64_t timeout) const;
  // The handle is gone: hosts stop waiting. Commands that hold the event go on.
  void abandon() noexcept;

  Signal signal;
  const Home home;
  const std::shared_ptr<EventPool> pool;
  const uint32_t index;
  const ze_event_scope_flags_t signal_scope;
  const ze_event_scope_flags_t wait_scope;

 private:
  std::atomic<bool> abandoned_{false};
};

}  // namespace softdriver
