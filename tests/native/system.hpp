// What the tests ask the operating system.
#pragma once

#include <cstddef>

namespace check {

// A library; without a path the test's own program. Null when it cannot be opened.
void* open_library(const char* path);
void* find_symbol(void* library, const char* name);

// What this process holds. Windows counts no handles here: the C++ library makes some when it likes.
size_t open_descriptors();
size_t mapped_blocks();

}  // namespace check
