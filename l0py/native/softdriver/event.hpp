// Event pools and their events.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "context.hpp"
#include "fork.hpp"
#include "object.hpp"
#include "places.hpp"
#include "signal.hpp"

namespace softdriver {

class EventPool final : public Object {
 public:
  using Handle = ze_event_pool_handle_t;
  static constexpr Kind kind_of = Kind::event_pool;
  EventPool(std::shared_ptr<Context> context, const ze_event_pool_desc_t& desc);

  const std::shared_ptr<Context> context;
  const ze_event_pool_flags_t flags;
  Places places;
};

class Event final : public Object {
 public:
  using Handle = ze_event_handle_t;
  static constexpr Kind kind_of = Kind::event;
  Event(std::shared_ptr<EventPool> pool, const ze_event_desc_t& desc);

  ze_result_t host_wait(uint64_t timeout) const;
  // The handle is gone: hosts stop waiting. Commands that hold the event go on.
  void abandon() noexcept;

  // When the command that completes the event ran, in the device's ticks.
  void ran(uint64_t begin, uint64_t end) noexcept {
    began = begin;
    ended = end;
  }
  std::atomic<uint64_t> began{0};
  std::atomic<uint64_t> ended{0};

  Signal signal;
  const Home home;
  const std::shared_ptr<EventPool> pool;
  const uint32_t index;
  const ze_event_scope_flags_t signal_scope;
  const ze_event_scope_flags_t wait_scope;

 private:
  std::atomic<bool> abandoned_{false};
};

// The event behind a handle, to signal it or to wait for it.
std::shared_ptr<Event> find_own_event(ze_event_handle_t event);

}  // namespace softdriver
