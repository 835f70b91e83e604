// Function tables and entry points by name; the generated sources define them.
#pragma once

namespace softdriver {

// The function table of an extension (`ZE_extension_graph`, ...), or null.
void* extension_table(const char* name) noexcept;
// An implemented function of the API, or null.
void* entry_point(const char* name) noexcept;

}  // namespace softdriver
