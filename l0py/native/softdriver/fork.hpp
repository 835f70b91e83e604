// What a fork leaves to the child: its parent's objects, but none of the threads that serve them and hold their locks.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

namespace softdriver {

// The locks of the process as a whole, each held for moments only, in the order in which one may be taken under
// another. A fork waits for them, so that the child finds them free.
enum class Lock : uint8_t {
  system,        // making the driver and its device
  objects,       // the register of handles
  reservations,  // of virtual memory
  allocations,   // the blocks of all contexts
  pools,         // what is taken of memory that blocks share
  exports,       // descriptors that the driver keeps and gives out again
  places,        // those of all pools
  faults,
  record,
  memory,  // how much of it is in use
  kept,    // what forked children cannot take down
  count,
};
std::mutex& process_lock(Lock lock);

// Changes in a forked child.
uint32_t fork_generation() noexcept;

// The process that an object belongs to.
class Home {
 public:
  bool left() const noexcept { return generation_ != fork_generation(); }
  // Waiting in a forked child would never end: UNINITIALIZED.
  void require() const;
  // Locks an object's own mutex, which nobody may ever unlock in a forked child: UNINITIALIZED.
  std::unique_lock<std::mutex> lock(std::mutex& mutex) const;
  // Lets an object go, except in a forked child: taking down what absent threads wait on would hang.
  void release(std::shared_ptr<const void> object) const;

 private:
  const uint32_t generation_ = fork_generation();
};

}  // namespace softdriver
