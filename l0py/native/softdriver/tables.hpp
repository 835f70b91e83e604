// Function tables and entry points by name; the generated sources define them.
#pragma once

namespace softdriver {

// The table of an NPU extension (`ZE_extension_graph`, ...), or null.
void* npu_extension_table(const char* name) noexcept;
// An implemented function of the API, or null.
void* entry_point(const char* name) noexcept;

}  // namespace softdriver
