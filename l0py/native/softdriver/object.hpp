// What every handle of the driver stands for, and the one register of them all.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "result.hpp"

namespace softdriver {

// A handle's type: one per class of objects.
enum class Kind : uint8_t {
  driver,
  device,
  context,
  queue,
  list,
  fence,
  event_pool,
  event,
  graph,
  query_network,
  build_log,
  profiling_pool,
  profiling_query,
  image,
  physical_mem,
};
const char* kind_name(Kind kind) noexcept;

// Handles are plain numbers, never addresses of anything and never used twice: a stale one is always noticed.
class Object : public std::enable_shared_from_this<Object> {
 public:
  explicit Object(Kind kind) noexcept : kind(kind) {}
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  void* handle() const noexcept { return reinterpret_cast<void*>(number); }

  const Kind kind;
  uintptr_t number = 0;  // set once, by publish_object
};

// Registers an object and gives it its handle. The register keeps it alive until `retire`.
void publish_object(const std::shared_ptr<Object>& object);
// The object behind a handle, translated by the loader when it is one of the loader's own.
std::shared_ptr<Object> find_object(const void* handle, Kind kind);
// The same, taken out of the register: the caller holds what may be the last reference.
std::shared_ptr<Object> retire_object(const void* handle, Kind kind);
// Live objects by kind, for the record.
std::map<std::string, size_t> count_objects();

// T names its handle type as T::Handle and its kind as T::kind_of.
template <class T>
typename T::Handle publish(const std::shared_ptr<T>& object) {
  publish_object(object);
  return static_cast<typename T::Handle>(object->handle());
}

template <class T>
std::shared_ptr<T> find(typename T::Handle handle) {
  return std::static_pointer_cast<T>(find_object(handle, T::kind_of));
}

template <class T>
std::shared_ptr<T> retire(typename T::Handle handle) {
  return std::static_pointer_cast<T>(retire_object(handle, T::kind_of));
}

}  // namespace softdriver
