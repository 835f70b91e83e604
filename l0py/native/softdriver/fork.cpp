#include "fork.hpp"

#include <array>
#include <atomic>
#include <utility>
#include <vector>

#include "result.hpp"

#ifndef _WIN32
#include <pthread.h>
#endif

namespace softdriver {
namespace {

using Locks = std::array<std::mutex, static_cast<size_t>(Lock::count)>;

// Deliberately never destroyed: other libraries call the driver while the process exits.
Locks& all_locks() {
  static Locks& instance = *new Locks;
  return instance;
}

std::atomic<uint32_t> forks{0};

#ifndef _WIN32
void lock_all() {
  for (std::mutex& lock : all_locks()) {
    lock.lock();
  }
}

void unlock_all() {
  for (std::mutex& lock : all_locks()) {
    lock.unlock();
  }
}

void begin_child() {
  ++forks;
  unlock_all();
}

[[maybe_unused]] const int fork_handlers = pthread_atfork(lock_all, unlock_all, begin_child);
#endif

}  // namespace

std::mutex& process_lock(Lock lock) { return all_locks()[static_cast<size_t>(lock)]; }

uint32_t fork_generation() noexcept { return forks.load(std::memory_order_relaxed); }

void Home::require() const {
  if (left()) {
    throw Failure(ZE_RESULT_ERROR_UNINITIALIZED, "made before a fork: this process has no device of its own");
  }
}

std::unique_lock<std::mutex> Home::lock(std::mutex& mutex) const {
  require();
  return std::unique_lock(mutex);
}

void Home::release(std::shared_ptr<const void> object) const {
  if (left()) {
    static auto& kept = *new std::vector<std::shared_ptr<const void>>;
    std::lock_guard lock(process_lock(Lock::kept));
    kept.push_back(std::move(object));
  }
}

}  // namespace softdriver
