// Command queues.
#pragma once

#include <memory>

#include "context.hpp"
#include "object.hpp"
#include "worker.hpp"

namespace softdriver {

// The checks of a queue description, also for immediate lists.
void check_queue_desc(const ze_command_queue_desc_t& desc);
// What a driver of its own kind has in the description's chain.
void check_queue_extensions(const ze_command_queue_desc_t& desc);
// INVALID_ARGUMENT for a queue group that the device does not have.
void check_ordinal(uint32_t ordinal);

class CommandQueue final : public Object {
 public:
  using Handle = ze_command_queue_handle_t;
  static constexpr Kind kind_of = Kind::queue;
  CommandQueue(std::shared_ptr<Context> context, const ze_command_queue_desc_t& desc);

  const std::shared_ptr<Context> context;
  const uint32_t ordinal;
  const uint32_t index;
  const ze_command_queue_flags_t flags;
  const ze_command_queue_mode_t mode;
  const ze_command_queue_priority_t priority;
  Worker worker;
};

}  // namespace softdriver
