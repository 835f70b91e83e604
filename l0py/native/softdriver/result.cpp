#include "result.hpp"

#include "text.hpp"

namespace softdriver {
namespace {

// Plain storage: it needs no destructor, so calls made while a thread or the process ends are safe.
thread_local char last_error_text[max_error_text];

}  // namespace

void set_last_error(const char* text) noexcept { copy_text(last_error_text, text); }

const char* last_error() noexcept { return last_error_text; }

}  // namespace softdriver
