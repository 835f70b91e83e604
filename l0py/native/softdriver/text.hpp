// Texts in fields of fixed size: plain storage, which needs no destructor.
#pragma once

#include <cstddef>
#include <cstring>
#include <string_view>

namespace softdriver {

// Cuts what does not fit; the rest of the field becomes zeros.
template <size_t size>
void copy_text(char (&field)[size], std::string_view text) noexcept {
  std::memset(field, 0, size);
  text.copy(field, size - 1);
}

}  // namespace softdriver
