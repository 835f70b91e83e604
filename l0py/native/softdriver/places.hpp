// The numbered places of a pool, each for one object.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_set>

#include "object.hpp"

namespace softdriver {

// Thread safe. Costs memory for taken places only.
class Places {
 public:
  // `in_use`: the result for a place that is taken already.
  Places(uint32_t count, ze_result_t in_use) noexcept : count_(count), in_use_(in_use) {}

  // No such place: INVALID_ARGUMENT.
  void take(uint32_t index);
  void give_back(uint32_t index) noexcept;
  // HANDLE_OBJECT_IN_USE while a place is taken; afterwards none can be taken.
  void close();

 private:
  uint32_t count_;
  const ze_result_t in_use_;
  std::unordered_set<uint32_t> taken_;
};

// Publishes an object in its place.
template <class T>
typename T::Handle publish_at(Places& places, uint32_t index, const std::shared_ptr<T>& object) {
  places.take(index);
  try {
    return publish(object);
  } catch (...) {
    places.give_back(index);
    throw;
  }
}

}  // namespace softdriver
