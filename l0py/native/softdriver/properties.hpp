// Structures of properties, which the caller brings and a driver fills.
#pragma once

#include "result.hpp"

namespace softdriver {

// An output structure that may be filled.
template <class T>
T& checked(T* properties, ze_structure_type_t stype, const char* name) {
  T& result = require(properties, name);
  require_stype(result.stype, stype, name);
  return result;
}

// Fills a structure and leaves what the caller put in its head.
template <class T>
void fill(T& properties, T values) {
  values.stype = properties.stype;
  values.pNext = properties.pNext;
  properties = values;
}

// The two-call pattern: room for 0 asks for the number; the answer is how many entries to fill.
template <class T>
uint32_t entries_to_fill(uint32_t* count, const T* entries, uint32_t available) {
  uint32_t& room = require(count, "pCount");
  const bool asks = room == 0 || entries == nullptr;
  if (room == 0 || room > available) {
    room = available;
  }
  return asks ? 0 : room;
}

}  // namespace softdriver
