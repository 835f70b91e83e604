// Element types under the names that the parts of OpenVINO give them.
#pragma once

#include <string_view>

namespace softdriver {

struct ElementType {
  const char* name;       // in IR attributes: "f32"
  const char* precision;  // in build flags: "FP32"
  const char* port;       // in IR ports: "FP32"
  unsigned bits;
};

// Null when there is no such type, or when it has no fixed size.
const ElementType* find_type(std::string_view name) noexcept;
const ElementType* find_type_by_precision(std::string_view precision) noexcept;
const ElementType* find_type_by_port(std::string_view port) noexcept;

}  // namespace softdriver
