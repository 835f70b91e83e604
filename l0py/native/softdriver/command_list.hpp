// Command lists: what was appended, in order, and the events around it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "context.hpp"
#include "fork.hpp"
#include "object.hpp"
#include "signal.hpp"

namespace softdriver {

class Event;
class Worker;

// One thing that a queue does. Commands own all that they touch, and never change once they may be in flight:
// an update replaces a command by an altered copy, so that earlier submissions keep what they were given.
class Command {
 public:
  virtual ~Command() = default;

  // Does the work, on a queue's worker, with no lock held. What it throws becomes the result of the fence, the
  // events and the synchronisation that follow.
  virtual void run() = 0;

  // A copy whose arguments may be replaced; null for commands that have none.
  virtual std::shared_ptr<Command> clone() const { return nullptr; }

  // Replaces one argument of a fresh clone. `strides`: five element counts, innermost first, or null.
  virtual void set_argument(uint32_t index, const void* pointer, const uint32_t* strides);
};

// A command and the events around it.
struct Step {
  std::shared_ptr<Command> command;  // null: only waits and signals
  std::vector<std::shared_ptr<Event>> waits;
  std::shared_ptr<Event> signal;
};
using Steps = std::vector<Step>;

class CommandList final : public Object {
 public:
  using Handle = ze_command_list_handle_t;
  static constexpr Kind kind_of = Kind::list;

  // A regular list; it runs when a queue executes it.
  CommandList(std::shared_ptr<Context> context, const ze_command_list_desc_t& desc);
  // An immediate list; it runs what is appended at once, on a worker of its own.
  CommandList(std::shared_ptr<Context> context, const ze_command_queue_desc_t& desc);
  ~CommandList() override;

  // Adds a command between its wait events and its signal event (each may be null or none), or runs it at once on
  // an immediate list. A closed list, a null array and handles that are no events are refused.
  void append(std::shared_ptr<Command> command, ze_event_handle_t signal, uint32_t wait_count,
              ze_event_handle_t* waits);

  void close();
  void reset();
  // What a queue shall run now; an open or an immediate list is refused.
  std::shared_ptr<const Steps> closed_steps() const;

  // The id of the command that will be appended next.
  uint64_t next_id() const;
  struct ArgumentUpdate {
    uint64_t command;
    uint32_t index;
    const void* pointer;
    const uint32_t* strides;
  };
  // All updates or none. Executions that were submitted before do not see them.
  void update(const std::vector<ArgumentUpdate>& updates);

  const Home home;
  const std::shared_ptr<Context> context;
  const uint32_t ordinal;
  const bool is_mutable;
  const ze_command_list_flags_t flags;

  // What an immediate list has of a queue; a regular list has no worker.
  struct Immediate {
    uint32_t index = 0;
    ze_command_queue_flags_t flags = 0;
    ze_command_queue_mode_t mode = ZE_COMMAND_QUEUE_MODE_DEFAULT;
    ze_command_queue_priority_t priority = ZE_COMMAND_QUEUE_PRIORITY_NORMAL;
  };
  const Immediate immediate;
  const std::unique_ptr<Worker> worker;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Steps> steps_;  // replaced, never altered: submissions share it
  Steps open_steps_;                    // while the list is open
  bool closed_ = false;
};

}  // namespace softdriver
