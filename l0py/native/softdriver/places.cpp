#include "places.hpp"

#include "fork.hpp"

namespace softdriver {

void Places::take(uint32_t index) {
  std::lock_guard lock(process_lock(Lock::places));
  if (index >= count_) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "the pool has no place " + std::to_string(index));
  }
  if (!taken_.insert(index).second) {
    throw Failure(in_use_, "place " + std::to_string(index) + " of the pool is in use");
  }
}

void Places::give_back(uint32_t index) noexcept {
  std::lock_guard lock(process_lock(Lock::places));
  taken_.erase(index);
}

void Places::close() {
  std::lock_guard lock(process_lock(Lock::places));
  if (!taken_.empty()) {
    throw Failure(ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, "the pool still has objects");
  }
  count_ = 0;
}

}  // namespace softdriver
