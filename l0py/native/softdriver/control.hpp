// How tests and tools steer the driver: a C interface that the library exports beside the API's tables.
#pragma once

#include <cstddef>
#include <cstdint>

#include "level_zero.h"

extern "C" {

// The version of this interface.
ZE_APIEXPORT uint32_t l0sd_version(void);

// Fails the calls number `after` .. `after + count - 1` of a function, counted from now (0 is the next call;
// count 0: for ever). INVALID_ARGUMENT: no function has this name.
ZE_APIEXPORT ze_result_t l0sd_inject(const char* function, uint64_t after, ze_result_t result, uint64_t count);
ZE_APIEXPORT void l0sd_clear_faults(void);

// `what`: bit 1 calls, bit 2 graph executions (these are always recorded).
ZE_APIEXPORT ze_result_t l0sd_record_start(uint32_t what);
ZE_APIEXPORT void l0sd_record_stop(void);
ZE_APIEXPORT void l0sd_record_reset(void);
// Writes the record as JSON, cut at `size` bytes with its final zero. Answers the bytes needed for all of it, 0 when
// the host has no memory left.
ZE_APIEXPORT size_t l0sd_record_json(char* buffer, size_t size);

// Behaves from now on as that release of the driver does. INVALID_ARGUMENT: it can imitate none of this name.
ZE_APIEXPORT ze_result_t l0sd_imitate(const char* release);

// The most bytes that allocations of all contexts may have together; 0 lifts the limit.
ZE_APIEXPORT ze_result_t l0sd_memory_limit(uint64_t bytes);

}  // extern "C"
