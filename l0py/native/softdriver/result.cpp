#include "result.hpp"

#include <cstdio>

namespace softdriver {
namespace {

// Plain storage: it needs no destructor, so calls made while a thread or the process ends are safe.
thread_local char last_error_text[1024];

}  // namespace

void set_last_error(const char* text) noexcept { std::snprintf(last_error_text, sizeof last_error_text, "%s", text); }

const char* last_error() noexcept { return last_error_text; }

}  // namespace softdriver
