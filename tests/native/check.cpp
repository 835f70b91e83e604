#include "check.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "system.hpp"

#ifndef _WIN32
#include <sys/wait.h>
#include <unistd.h>
#endif

Tables l0;
Control l0sd;

namespace check {
namespace {

std::atomic<int> checks{0};
std::atomic<int> failures{0};

struct Test {
  const char* name;
  void (*body)();
};
std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

// Without a path the driver is linked into the test itself.
void* driver_library() {
  static void* const library = [] {
    void* opened = open_library(std::getenv("L0PY_TEST_DRIVER"));
    if (opened == nullptr) {
      std::exit(2);
    }
    return opened;
  }();
  return library;
}

template <class Function>
void find(Function& function, const char* name) {
  function = reinterpret_cast<Function>(driver_symbol(name));
  CHECK(function != nullptr);
}

void load_driver() {
  for (const TableGetter& getter : table_getters) {
    if (void* symbol = driver_symbol(getter.name)) {
      OK(getter.read(symbol, reinterpret_cast<char*>(&l0) + getter.offset));
    }
  }
  find(l0sd.version, "l0sd_version");
  find(l0sd.inject, "l0sd_inject");
  find(l0sd.clear_faults, "l0sd_clear_faults");
  find(l0sd.record_start, "l0sd_record_start");
  find(l0sd.record_stop, "l0sd_record_stop");
  find(l0sd.record_reset, "l0sd_record_reset");
  find(l0sd.record_json, "l0sd_record_json");
  find(l0sd.memory_limit, "l0sd_memory_limit");
  find(l0sd.imitate, "l0sd_imitate");
}

constexpr const char* counted[] = {
    "command_list", "command_queue", "context",   "event",          "event_pool",      "fence",
    "graph",        "query_network", "build_log", "profiling_pool", "profiling_query", "image",
    "physical_mem", "now",           "blocks",    "imported_fds",   "imported_pages",  "mappings",
};

struct Holdings {
  size_t descriptors = 0;
  size_t mappings = 0;
  std::array<uint64_t, std::size(counted)> objects{};

  bool operator==(const Holdings& other) const {
    return descriptors == other.descriptors && mappings == other.mappings && objects == other.objects;
  }
};

Holdings holdings() {
  Holdings now;
  now.descriptors = open_descriptors();
  now.mappings = mapped_blocks();
  // Behind the calls, whose names are others.
  const std::string all = record();
  const std::string json = all.substr(all.rfind("\"objects\":"));
  for (size_t i = 0; i < now.objects.size(); ++i) {
    now.objects[i] = number_of(json, counted[i]);
  }
  return now;
}

void print_difference(const Holdings& before, const Holdings& after) {
  std::printf("  descriptors %zu -> %zu, mappings %zu -> %zu\n", before.descriptors, after.descriptors, before.mappings,
              after.mappings);
  for (size_t i = 0; i < before.objects.size(); ++i) {
    if (before.objects[i] != after.objects[i]) {
      std::printf("  %s %llu -> %llu\n", counted[i], static_cast<unsigned long long>(before.objects[i]),
                  static_cast<unsigned long long>(after.objects[i]));
    }
  }
}

void run(const Test& test) {
  const int failed_before = failures;
  const Holdings before = holdings();
  test.body();
  l0sd.clear_faults();
  l0sd.memory_limit(0);
  const Holdings after = holdings();
  CHECK(before == after);
  if (!(before == after)) {
    print_difference(before, after);
  }
  std::printf("%s: %s\n", failures == failed_before ? "ok" : "FAILED", test.name);
  std::fflush(stdout);
}

}  // namespace

Registered::Registered(const char* name, void (*test)()) { tests().push_back({name, test}); }

void report(bool good, const char* what, const char* file, int line) {
  ++checks;
  if (!good) {
    ++failures;
    std::printf("%s:%d: not true: %s\n", file, line, what);
    std::fflush(stdout);
  }
}

void report_result(ze_result_t result, ze_result_t wanted, const char* what, const char* file, int line) {
  ++checks;
  if (result != wanted) {
    ++failures;
    std::printf("%s:%d: %s answers %#x, not %#x\n", file, line, what, static_cast<unsigned>(result),
                static_cast<unsigned>(wanted));
    std::fflush(stdout);
  }
}

void* driver_symbol(const char* name) { return find_symbol(driver_library(), name); }

const Npu& npu() {
  static const Npu system = [] {
    Npu made{};
    uint32_t count = 1;
    OK(l0.ze_global.pfnInit(0));
    OK(l0.ze_driver.pfnGet(&count, &made.driver));
    OK(l0.ze_device.pfnGet(made.driver, &count, &made.device));
    return made;
  }();
  return system;
}

ze_context_handle_t make_context() {
  const ze_context_desc_t desc{ZE_STRUCTURE_TYPE_CONTEXT_DESC, nullptr, 0};
  ze_context_handle_t made = nullptr;
  OK(l0.ze_context.pfnCreate(npu().driver, &desc, &made));
  return made;
}

ze_command_queue_desc_t queue_desc(ze_command_queue_mode_t mode) {
  return {ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC, nullptr, 0, 0, 0, mode, ZE_COMMAND_QUEUE_PRIORITY_NORMAL};
}

ze_command_queue_handle_t make_queue(ze_context_handle_t context, ze_command_queue_mode_t mode) {
  const ze_command_queue_desc_t desc = queue_desc(mode);
  ze_command_queue_handle_t made = nullptr;
  OK(l0.ze_command_queue.pfnCreate(context, npu().device, &desc, &made));
  return made;
}

ze_command_list_handle_t make_list(ze_context_handle_t context, bool is_mutable) {
  const ze_mutable_command_list_exp_desc_t wish{ZE_STRUCTURE_TYPE_MUTABLE_COMMAND_LIST_EXP_DESC, nullptr, 0};
  const ze_command_list_desc_t desc{ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC, is_mutable ? &wish : nullptr, 0, 0};
  ze_command_list_handle_t made = nullptr;
  OK(l0.ze_command_list.pfnCreate(context, npu().device, &desc, &made));
  return made;
}

ze_command_list_handle_t make_immediate(ze_context_handle_t context, ze_command_queue_mode_t mode) {
  const ze_command_queue_desc_t desc = queue_desc(mode);
  ze_command_list_handle_t made = nullptr;
  OK(l0.ze_command_list.pfnCreateImmediate(context, npu().device, &desc, &made));
  return made;
}

ze_fence_handle_t make_fence(ze_command_queue_handle_t queue, ze_fence_flags_t flags) {
  const ze_fence_desc_t desc{ZE_STRUCTURE_TYPE_FENCE_DESC, nullptr, flags};
  ze_fence_handle_t made = nullptr;
  OK(l0.ze_fence.pfnCreate(queue, &desc, &made));
  return made;
}

ze_event_pool_handle_t make_pool(ze_context_handle_t context, uint32_t count) {
  const ze_event_pool_desc_t desc{ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, nullptr, ZE_EVENT_POOL_FLAG_HOST_VISIBLE, count};
  ze_device_handle_t device = npu().device;
  ze_event_pool_handle_t made = nullptr;
  OK(l0.ze_event_pool.pfnCreate(context, &desc, 1, &device, &made));
  return made;
}

ze_event_handle_t make_event(ze_event_pool_handle_t pool, uint32_t index) {
  const ze_event_desc_t desc{ZE_STRUCTURE_TYPE_EVENT_DESC, nullptr, index, ZE_EVENT_SCOPE_FLAG_HOST,
                             ZE_EVENT_SCOPE_FLAG_HOST};
  ze_event_handle_t made = nullptr;
  OK(l0.ze_event.pfnCreate(pool, &desc, &made));
  return made;
}

ze_host_mem_alloc_desc_t host_desc(const void* next, ze_host_mem_alloc_flags_t flags) {
  return {ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, next, flags};
}

char* make_memory(ze_context_handle_t context, size_t size) {
  const ze_host_mem_alloc_desc_t desc = host_desc();
  void* made = nullptr;
  OK(l0.ze_mem.pfnAllocHost(context, &desc, size, 0, &made));
  return static_cast<char*>(made);
}

void destroy(ze_context_handle_t context) { OK(l0.ze_context.pfnDestroy(context)); }
void destroy(ze_command_queue_handle_t queue) { OK(l0.ze_command_queue.pfnDestroy(queue)); }
void destroy(ze_command_list_handle_t list) { OK(l0.ze_command_list.pfnDestroy(list)); }
void destroy(ze_fence_handle_t fence) { OK(l0.ze_fence.pfnDestroy(fence)); }
void destroy(ze_event_pool_handle_t pool) { OK(l0.ze_event_pool.pfnDestroy(pool)); }
void destroy(ze_event_handle_t event) { OK(l0.ze_event.pfnDestroy(event)); }

ze_result_t execute(ze_command_queue_handle_t queue, ze_command_list_handle_t list, ze_fence_handle_t fence) {
  return l0.ze_command_queue.pfnExecuteCommandLists(queue, 1, &list, fence);
}

void sleep_ms(unsigned milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

std::string record() {
  // It may grow between the two calls while other threads run.
  std::string text(l0sd.record_json(nullptr, 0) + 4096, '\0');
  text.resize(l0sd.record_json(text.data(), text.size()) - 1);
  return text;
}

uint64_t number_of(const std::string& json, const char* name) {
  const std::string key = "\"" + std::string(name) + "\":";
  const size_t found = json.find(key);
  return found == std::string::npos ? 0 : std::strtoull(json.c_str() + found + key.size(), nullptr, 10);
}

#ifndef _WIN32  // where nothing forks
void in_child(void (*body)()) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a child that hangs must not hang the tests
    failures = 0;
    body();
    std::exit(failures == 0 ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void leave_child() {
  std::fflush(stdout);
  _exit(failures == 0 ? 0 : 1);
}
#endif

}  // namespace check

// Without arguments all tests run; with some, those of these names.
int main(int count, char** names) {
  check::load_driver();
  for (const check::Test& test : check::tests()) {
    auto named = [&](const char* name) { return std::strcmp(name, test.name) == 0; };
    if (count == 1 || std::any_of(names + 1, names + count, named)) {
      check::run(test);
    }
  }
  std::printf("%d checks, %d failed\n", check::checks.load(), check::failures.load());
  return check::failures == 0 ? 0 : 1;
}
