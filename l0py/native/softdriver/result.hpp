// A failed call, on its way from the place that noticed to the C boundary that answers.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

#include "level_zero.h"

namespace softdriver {

// Thrown by implementations, turned into a result code by the entry points.
// The text becomes the answer of zeDriverGetLastErrorDescription.
class Failure : public std::runtime_error {
 public:
  Failure(ze_result_t result, const std::string& text) : std::runtime_error(text), result(result) {}
  const ze_result_t result;
};

// What this thread's last failed call said; empty when there was none. Longer texts are cut.
constexpr size_t max_error_text = 1024;  // bytes, the final zero among them
void set_last_error(const char* text) noexcept;
const char* last_error() noexcept;

// The checks that the specification asks of nearly every function.
template <class T>
T& require(T* pointer, const char* name) {
  if (pointer == nullptr) {
    throw Failure(ZE_RESULT_ERROR_INVALID_NULL_POINTER, std::string(name) + " is null");
  }
  return *pointer;
}

inline void require(const void* pointer, const char* name) {
  if (pointer == nullptr) {
    throw Failure(ZE_RESULT_ERROR_INVALID_NULL_POINTER, std::string(name) + " is null");
  }
}

// Unknown bits in a flags field are INVALID_ENUMERATION.
inline void require_flags(uint32_t flags, uint32_t known, const char* name) {
  if ((flags & ~known) != 0) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ENUMERATION, std::string(name) + " has unknown bits");
  }
}

inline void require_stype(ze_structure_type_t given, ze_structure_type_t wanted, const char* name) {
  if (given != wanted) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, std::string(name) + " has a wrong stype");
  }
}

// A structure of a pNext chain, or null. Links of an unknown type are passed over.
template <class T>
const T* find_next(const void* next, uint32_t stype) noexcept {
  struct Link {
    uint32_t stype;
    const void* next;
  };
  constexpr int longest = 64;  // no honest chain is longer: this one bites its own tail
  auto* link = static_cast<const Link*>(next);
  for (int links = 0; link != nullptr && links < longest; ++links) {
    if (link->stype == stype) {
      return reinterpret_cast<const T*>(link);
    }
    link = static_cast<const Link*>(link->next);
  }
  return nullptr;
}

template <class T>
T* find_next(void* next, uint32_t stype) noexcept {
  return const_cast<T*>(find_next<T>(static_cast<const void*>(next), stype));
}

}  // namespace softdriver
