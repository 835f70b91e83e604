// What the drivers are that this one stands for, and how they differ: read from here, decided nowhere else.
#pragma once

#include <cstddef>
#include <cstdint>

#include "level_zero.h"

namespace softdriver {

// None lists ZE_extension_driver_ddi_handles: by it a driver promises that its handles point to function tables, which
// loaders from 1.24 on then use. Handles here are numbers, and those loaders wrap them as older ones do.
struct Extension {
  const char* name;
  uint32_t version;
};

// What becomes of the structures that are chained to the description of an allocation.
enum class Chain : uint8_t {
  honoured,  // what they ask for is done
  checked,   // mistakes are found, but nothing is imported: SUCCESS and new memory
  ignored,   // SUCCESS and new memory, whatever they say
};

// What an export query gets for another kind of descriptor than DMA_BUF.
enum class OtherKind : uint8_t { passed_over, exported, refused };

// What an export query gets for memory that was not allocated for export.
enum class Unasked : uint8_t {
  refused,   // NOT_AVAILABLE
  exported,  // its descriptor all the same
  pooled,    // small memory lies in a pool, whose descriptor it is: another size, and the memory somewhere in it
};

// How large the pages are that a driver tells for an allocation.
enum class PageSizes : uint8_t { small, by_type, by_type_and_size };

// One release of a driver.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): there are four of them, ordered for who reads them
struct Behaviour {
  const char* release;
  ze_api_version_t api_version;
  ze_api_version_t newest_functions;  // those of later versions answer UNSUPPORTED_FEATURE
  uint32_t driver_version;
  ze_driver_uuid_t uuid;
  ze_ipc_property_flags_t ipc;
  const Extension* extensions;
  uint32_t extension_count;

  // Allocation.
  Chain host_chain;
  Chain device_chain;
  Chain shared_chain;        // always that of the device description
  bool first_link_only;      // the rest of a chain is never looked at
  ze_result_t unknown_link;  // SUCCESS: it is passed over
  ze_external_memory_type_flags_t import_types;
  ze_external_memory_type_flags_t export_types;
  bool exact_export_types;  // exports are asked for with just that mask; else with any that has a bit of it
  ze_result_t bad_handle_type;
  ze_result_t bad_handle;  // for what is no shareable memory
  bool closes_imports;     // the caller's descriptor, after SUCCESS
  bool closes_image_imports;
  bool maps_host_pages;
  ze_host_mem_alloc_flags_t read_only_flags;  // of imports that the device will only read
  ze_result_t bad_host_pages;                 // SUCCESS: each mistake has a result of its own
  ze_result_t pages_not_for_host;             // chained to another kind of allocation; SUCCESS: they are passed over
  bool empty_allocations;
  bool checks_alignment;
  size_t most_alignment;  // that is honoured
  ze_result_t too_large;
  ze_result_t no_host_memory;  // when the memory for a host allocation is used up

  // Queries.
  bool foreign_is_unknown;    // properties of a foreign address: SUCCESS and the type UNKNOWN; else NOT_AVAILABLE
  ze_result_t foreign_range;  // its address range
  bool cpu_ranges;            // a range begins at the CPU's address; else at the device's own
  bool tells_device;
  PageSizes page_sizes;
  ze_result_t unknown_query;  // for a chained structure; SUCCESS: it is passed over
  OtherKind other_kind;
  Unasked unasked;
  bool exports_host;
  bool exports_shared;
  bool keeps_exports;  // one descriptor for all, which stays the driver's; else each is new and the caller's
  bool opaque_ipc;     // IPC handles name their process, and are opened from there; else they hold a bare descriptor
  bool device_status;  // the function is there
  bool system_barrier;

  // The end.
  bool frees_from_within;  // an address inside a block frees it
  ze_driver_memory_free_policy_ext_flags_t free_policies;

  // Commands.
  bool host_pointers;  // copies take addresses that the driver does not know for the host's memory
};

struct QueueGroup {
  ze_command_queue_group_property_flags_t flags;
  size_t max_fill_pattern;
};

// What a driver is, whatever it imitates.
struct Identity {
  const char* name;              // as in "npu"
  ze_init_flags_t type;          // which devices it has, as an init asks for them
  const char* record_variable;   // the environment's: where to write the record at exit
  const char* release_variable;  // the environment's: which release to imitate from the start
  const QueueGroup* queue_groups;
  uint32_t queue_group_count;
  const Behaviour* releases;  // the first one unless told otherwise
  size_t release_count;
};

// Each driver's directory defines its own.
extern const Identity identity;

// What is imitated now.
const Behaviour& behaviour() noexcept;
// False when the driver has no such release. Objects that exist are not changed.
bool imitate(const char* release) noexcept;

}  // namespace softdriver
