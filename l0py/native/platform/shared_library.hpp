// Libraries opened at run time. They are never closed: drivers leave threads and exit handlers behind.
#pragma once

#include <string>

namespace platform {

// Null when it cannot be opened. Texts are UTF-8. On Windows a name that is no absolute path is looked for among the
// system's own libraries alone.
void* open_library(const char* name) noexcept;
// Why this thread could not open the last one.
std::string library_error();
void* find_symbol(void* library, const char* name) noexcept;

// A library of this name that the process has loaded already, or null.
void* loaded_library(const char* name) noexcept;
// The library that a function or an object lies in.
void* library_of(const void* address) noexcept;
// The path of a loaded library whose file's name begins so (Windows: is so); empty when there is none.
std::string loaded_library_path(const char* file);

}  // namespace platform
