#include "object.hpp"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "fork.hpp"
#include "loader_handles.hpp"
#include "pages.hpp"

namespace softdriver {
namespace {

// Handles are numbers out of address ranges that are reserved for nothing else: they differ from every address in the
// process and from the handles of another driver (loaders tell objects apart by their numbers), and reading through
// one is a fault. 16 apart, so that no tag bits are lost.
constexpr size_t range_size = size_t{1024} * 1024 * 1024;
constexpr size_t step = 16;

struct Register {
  std::unordered_map<uintptr_t, std::shared_ptr<Object>> objects;
  std::vector<uintptr_t> ranges;
  uintptr_t next = 0;
  uintptr_t end = 0;
};

// Under Lock::objects. Deliberately never destroyed: other libraries call the driver while the process exits.
Register& the_register() {
  static Register& instance = *new Register;
  return instance;
}

std::shared_ptr<Object> look_up(const void* handle, Kind kind) {
  Register& all = the_register();
  std::lock_guard lock(process_lock(Lock::objects));
  auto found = all.objects.find(reinterpret_cast<uintptr_t>(handle));
  return found != all.objects.end() && found->second->kind == kind ? found->second : nullptr;
}

// A number of ours that stands for nothing, or for something of another kind: no loader needs to be asked.
bool was_given_out(const void* handle) {
  const auto number = reinterpret_cast<uintptr_t>(handle);
  Register& all = the_register();
  std::lock_guard lock(process_lock(Lock::objects));
  return std::any_of(all.ranges.begin(), all.ranges.end(),
                     [number](uintptr_t first) { return number - first < range_size; });
}

}  // namespace

const char* kind_name(Kind kind) noexcept {
  switch (kind) {
    case Kind::driver: return "driver";
    case Kind::device: return "device";
    case Kind::context: return "context";
    case Kind::queue: return "command_queue";
    case Kind::list: return "command_list";
    case Kind::fence: return "fence";
    case Kind::event_pool: return "event_pool";
    case Kind::event: return "event";
    case Kind::graph: return "graph";
    case Kind::query_network: return "query_network";
    case Kind::build_log: return "build_log";
    case Kind::profiling_pool: return "profiling_pool";
    case Kind::profiling_query: return "profiling_query";
    case Kind::image: return "image";
    case Kind::physical_mem: return "physical_mem";
  }
  return "object";
}

void publish_object(const std::shared_ptr<Object>& object) {
  Register& all = the_register();
  std::lock_guard lock(process_lock(Lock::objects));
  if (all.next == all.end) {
    all.ranges.reserve(all.ranges.size() + 1);
    const uintptr_t first = reserve_addresses(range_size);
    if (first == 0) {
      throw Failure(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, "no address range for handles");
    }
    all.ranges.push_back(first);
    all.next = first;
    all.end = first + range_size;
  }
  all.objects.emplace(all.next, object);
  object->number = all.next;
  all.next += step;
}

std::shared_ptr<Object> find_object(const void* handle, Kind kind) {
  if (handle == nullptr) {
    throw Failure(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, std::string(kind_name(kind)) + " handle is null");
  }
  if (auto object = look_up(handle, kind)) {
    return object;
  }
  // Extension functions and pNext bypass the loader, so its own handles may arrive here.
  const void* inner = was_given_out(handle) ? nullptr : translate_loader_handle(handle, kind);
  if (inner != nullptr) {
    if (auto object = look_up(inner, kind)) {
      return object;
    }
  }
  throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT,
                std::string("not a live ") + kind_name(kind) + " handle of this driver");
}

std::shared_ptr<Object> retire_object(const void* handle, Kind kind) {
  auto object = find_object(handle, kind);
  Register& all = the_register();
  std::lock_guard lock(process_lock(Lock::objects));
  if (all.objects.erase(object->number) == 0) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, std::string(kind_name(kind)) + " was destroyed meanwhile");
  }
  return object;
}

std::map<std::string, size_t> count_objects() {
  Register& all = the_register();
  std::lock_guard lock(process_lock(Lock::objects));
  std::map<std::string, size_t> counts;
  for (const auto& entry : all.objects) {
    ++counts[kind_name(entry.second->kind)];
  }
  return counts;
}

}  // namespace softdriver
