#include "record.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <mutex>

#include "device.hpp"
#include "fork.hpp"
#include "memory.hpp"
#include "object.hpp"

namespace softdriver {
namespace {

constexpr size_t function_count = static_cast<size_t>(Function::count_of_functions);
constexpr size_t kept = 1024;          // of the last calls and executions
constexpr size_t most_arguments = 12;  // that any function of the API has

struct Call {
  Function function;
  ze_result_t result;
  uint8_t argument_count;
  std::array<uint64_t, most_arguments> arguments;
};

struct Execution {
  uint64_t number;
  uintptr_t graph;
  std::vector<const void*> arguments;
  std::vector<uint64_t> memory;
};

struct Record {
  std::array<uint64_t, function_count> counts{};
  std::array<uint64_t, function_count> failures{};
  std::deque<Call> calls;
  std::deque<Execution> executions;
  uint64_t executed = 0;
  uint64_t next_number = 0;  // goes on through resets, so that a number always means one execution
  uint64_t dropped = 0;      // entries that there was no memory for
};

// Under Lock::record. Deliberately never destroyed: other libraries call the driver while the process exits.
Record& the_record() {
  static Record& instance = *new Record;
  return instance;
}

MemoryFigures memory{};  // under Lock::memory

template <class T>
void append(std::deque<T>& ring, T entry) {
  if (ring.size() == kept) {
    ring.pop_front();
  }
  ring.push_back(std::move(entry));
}

// `[a,b,c]`, each entry written by `write`.
template <class Range, class Write>
std::string json_list(const Range& range, Write write) {
  std::string text = "[";
  for (const auto& entry : range) {
    text += (text.size() > 1 ? "," : "") + write(entry);
  }
  return text + "]";
}

std::string json_field(const char* name, const std::string& value) { return "\"" + std::string(name) + "\":" + value; }

std::string json_field(const char* name, uint64_t value) { return json_field(name, std::to_string(value)); }

std::string json_pointer(const void* pointer) { return std::to_string(reinterpret_cast<uintptr_t>(pointer)); }

std::string json_counts(const Record& record) {
  std::string text = "{";
  for (size_t i = 0; i < function_count; ++i) {
    if (record.counts[i] != 0) {
      text += (text.size() > 1 ? ",\"" : "\"") + std::string(function_names[i]) + "\":{" +
              json_field("count", record.counts[i]) + "," + json_field("failures", record.failures[i]) + "}";
    }
  }
  return text + "}";
}

std::string json_call(const Call& call) {
  std::vector<uint64_t> arguments(call.arguments.begin(), call.arguments.begin() + call.argument_count);
  return "{\"function\":\"" + std::string(function_names[static_cast<size_t>(call.function)]) + "\"," +
         json_field("result", static_cast<uint64_t>(call.result)) + "," +
         json_field("arguments", json_list(arguments, [](uint64_t value) { return std::to_string(value); })) + "}";
}

std::string json_execution(const Execution& execution) {
  return "{" + json_field("number", execution.number) + "," + json_field("graph", execution.graph) + "," +
         json_field("arguments", json_list(execution.arguments, json_pointer)) + "," +
         json_field("memory", json_list(execution.memory, [](uint64_t id) { return std::to_string(id); })) + "}";
}

std::string json_objects() {
  std::string text = "{";
  for (const auto& [name, count] : count_objects()) {
    text += (text.size() > 1 ? "," : "") + json_field(name.c_str(), count);
  }
  return text + "}";
}

std::string json_memory() {
  const MemoryFigures figures = memory_figures();
  const BlockFigures blocks = block_figures();
  return "{" + json_field("now", figures.now) + "," + json_field("peak", figures.peak) + "," +
         json_field("limit", figures.limit) + "," + json_field("blocks", blocks.created) + "," +
         json_field("imported_fds", blocks.imported_fds) + "," + json_field("imported_pages", blocks.imported_pages) +
         "," + json_field("mappings", blocks.mappings) + "}";
}

}  // namespace

std::atomic<bool> calls_recorded{false};

void record_call(Function function, ze_result_t result, std::initializer_list<uint64_t> arguments) noexcept {
  Call call{function, result, static_cast<uint8_t>(std::min(arguments.size(), most_arguments)), {}};
  std::copy_n(arguments.begin(), call.argument_count, call.arguments.begin());
  const auto index = static_cast<size_t>(function);
  Record& record = the_record();
  std::lock_guard lock(process_lock(Lock::record));
  ++record.counts[index];
  record.failures[index] += result == ZE_RESULT_SUCCESS || result == ZE_RESULT_NOT_READY ? 0 : 1;
  try {
    append(record.calls, call);
  } catch (const std::bad_alloc&) {
    ++record.dropped;  // no reason to fail the call
  }
}

void record_execution(uintptr_t graph, const std::vector<const void*>& arguments,
                      const std::vector<uint64_t>& memory) noexcept {
  Record& record = the_record();
  std::lock_guard lock(process_lock(Lock::record));
  ++record.executed;
  try {
    append(record.executions, {record.next_number++, graph, arguments, memory});
  } catch (const std::bad_alloc&) {
    ++record.dropped;
  }
}

void start_recording() noexcept { calls_recorded.store(true, std::memory_order_relaxed); }

void stop_recording() noexcept { calls_recorded.store(false, std::memory_order_relaxed); }

void reset_record() noexcept {
  Record& record = the_record();
  {
    std::lock_guard lock(process_lock(Lock::record));
    record.counts.fill(0);
    record.failures.fill(0);
    record.calls.clear();
    record.executions.clear();
    record.executed = 0;
    record.dropped = 0;
  }
  std::lock_guard lock(process_lock(Lock::memory));
  memory.peak = memory.now;
}

std::string record_json() {
  Record& record = the_record();
  std::string text;
  {
    std::lock_guard lock(process_lock(Lock::record));
    text = "{" + json_field("calls", json_counts(record)) + "," +
           json_field("trace", json_list(record.calls, json_call)) + "," + json_field("executed", record.executed) +
           "," + json_field("dropped", record.dropped) + "," +
           json_field("executions", json_list(record.executions, json_execution));
  }
  return text + "," + json_field("objects", json_objects()) + "," + json_field("memory", json_memory()) + "}";
}

bool account_memory(uint64_t bytes) noexcept {
  const uint64_t available = device_memory_size();
  std::lock_guard lock(process_lock(Lock::memory));
  const uint64_t most = memory.limit == 0 ? available : std::min(memory.limit, available);
  if (memory.now > most || bytes > most - memory.now) {
    return false;
  }
  memory.now += bytes;
  memory.peak = std::max(memory.peak, memory.now);
  return true;
}

void release_memory(uint64_t bytes) noexcept {
  std::lock_guard lock(process_lock(Lock::memory));
  memory.now -= bytes;
}

void set_memory_limit(uint64_t bytes) noexcept {
  std::lock_guard lock(process_lock(Lock::memory));
  memory.limit = bytes;
}

MemoryFigures memory_figures() noexcept {
  std::lock_guard lock(process_lock(Lock::memory));
  return memory;
}

}  // namespace softdriver
