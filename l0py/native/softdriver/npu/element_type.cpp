#include "element_type.hpp"

namespace softdriver {
namespace {

constexpr ElementType types[] = {
    {"boolean", "BOOL", "BOOL", 8},
    {"bf16", "BF16", "BF16", 16},
    {"f16", "FP16", "FP16", 16},
    {"f32", "FP32", "FP32", 32},
    {"f64", "FP64", "FP64", 64},
    {"f4e2m1", "FP4_E2M1", "F4E2M1", 4},
    {"f8e4m3", "FP8_E4M3", "F8E4M3", 8},
    {"f8e5m2", "FP8_E5M2", "F8E5M2", 8},
    {"f8e8m0", "FP8_E8M0", "F8E8M0", 8},
    {"i4", "I4", "I4", 4},
    {"i8", "I8", "I8", 8},
    {"i16", "I16", "I16", 16},
    {"i32", "I32", "I32", 32},
    {"i64", "I64", "I64", 64},
    {"nf4", "NF4", "NF4", 4},
    {"u1", "BIN", "BIN", 1},
    {"u2", "U2", "U2", 2},
    {"u3", "U3", "U3", 3},
    {"u4", "U4", "U4", 4},
    {"u6", "U6", "U6", 6},
    {"u8", "U8", "U8", 8},
    {"u16", "U16", "U16", 16},
    {"u32", "U32", "U32", 32},
    {"u64", "U64", "U64", 64},
};

const ElementType* search(const char* ElementType::* field, std::string_view value) noexcept {
  for (const ElementType& type : types) {
    if (value == type.*field) {
      return &type;
    }
  }
  return nullptr;
}

}  // namespace

const ElementType* find_type(std::string_view name) noexcept { return search(&ElementType::name, name); }

const ElementType* find_type_by_precision(std::string_view precision) noexcept {
  return search(&ElementType::precision, precision);
}

const ElementType* find_type_by_port(std::string_view port) noexcept { return search(&ElementType::port, port); }

}  // namespace softdriver
