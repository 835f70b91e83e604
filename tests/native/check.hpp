// What the native tests share: checks, the driver's functions as loaders get them, and makers of objects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "control.hpp"
#include "loader_tables.hpp"

// Checks never stop a test: the first failure of several is often not the telling one.
#define CHECK(condition) check::report((condition), #condition, __FILE__, __LINE__)
#define CHECK_RESULT(call, wanted) check::report_result((call), ZE_RESULT_##wanted, #call, __FILE__, __LINE__)
#define OK(call) CHECK_RESULT(call, SUCCESS)

// Tests of a file run in their order. Each must give back all descriptors, mappings and objects that it took.
#define TEST(name)                                               \
  static void name();                                            \
  static const check::Registered name##_registered(#name, name); \
  static void name()

// The driver's functions. Filled before the first test with those of the newest API.
extern Tables l0;

// The driver's control interface.
struct Control {
  decltype(&l0sd_version) version;
  decltype(&l0sd_inject) inject;
  decltype(&l0sd_clear_faults) clear_faults;
  decltype(&l0sd_record_start) record_start;
  decltype(&l0sd_record_stop) record_stop;
  decltype(&l0sd_record_reset) record_reset;
  decltype(&l0sd_record_json) record_json;
  decltype(&l0sd_memory_limit) memory_limit;
  decltype(&l0sd_imitate) imitate;
};
extern Control l0sd;

namespace check {

inline constexpr uint64_t ever = UINT64_MAX;

void report(bool good, const char* what, const char* file, int line);
void report_result(ze_result_t result, ze_result_t wanted, const char* what, const char* file, int line);

struct Registered {
  Registered(const char* name, void (*test)());
};

// A symbol of the driver's library, null when it has none of this name.
void* driver_symbol(const char* name);

// The driver and its device; initialises at the first use.
struct Npu {
  ze_driver_handle_t driver;
  ze_device_handle_t device;
};
const Npu& npu();

// The same, where the driver is the GPU's.
inline const Npu& gpu() { return npu(); }

// An NPU extension's function table.
template <class Table>
Table& extension(const char* name) {
  void* table = nullptr;
  OK(l0.ze_driver.pfnGetExtensionFunctionAddress(npu().driver, name, &table));
  return *static_cast<Table*>(table);
}

ze_context_handle_t make_context();
ze_command_queue_desc_t queue_desc(ze_command_queue_mode_t mode = ZE_COMMAND_QUEUE_MODE_DEFAULT);
ze_command_queue_handle_t make_queue(ze_context_handle_t context,
                                     ze_command_queue_mode_t mode = ZE_COMMAND_QUEUE_MODE_DEFAULT);
ze_command_list_handle_t make_list(ze_context_handle_t context, bool is_mutable = false);
ze_command_list_handle_t make_immediate(ze_context_handle_t context, ze_command_queue_mode_t mode);
ze_fence_handle_t make_fence(ze_command_queue_handle_t queue, ze_fence_flags_t flags = 0);
ze_event_pool_handle_t make_pool(ze_context_handle_t context, uint32_t count);
ze_event_handle_t make_event(ze_event_pool_handle_t pool, uint32_t index);
ze_host_mem_alloc_desc_t host_desc(const void* next = nullptr, ze_host_mem_alloc_flags_t flags = 0);
// Zeroed host memory.
char* make_memory(ze_context_handle_t context, size_t size);

void destroy(ze_context_handle_t context);
void destroy(ze_command_queue_handle_t queue);
void destroy(ze_command_list_handle_t list);
void destroy(ze_fence_handle_t fence);
void destroy(ze_event_pool_handle_t pool);
void destroy(ze_event_handle_t event);
template <class First, class Second, class... Rest>
void destroy(First first, Second second, Rest... rest) {
  destroy(first);
  destroy(second, rest...);
}

ze_result_t execute(ze_command_queue_handle_t queue, ze_command_list_handle_t list, ze_fence_handle_t fence = nullptr);

void sleep_ms(unsigned milliseconds);

// The driver's record, and the first number in it that stands behind a name (0 when the name is not there).
std::string record();
uint64_t number_of(const std::string& json, const char* name);

// Runs a test's part in a forked process, which ends like a program does. Its failed checks count here.
void in_child(void (*body)());
// Ends such a process at once: nobody looks for leaks, which what its parent's other threads held would be.
[[noreturn]] void leave_child();

}  // namespace check
