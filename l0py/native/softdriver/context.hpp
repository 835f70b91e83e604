// A context: the owner of allocations, and what queues, lists and graphs belong to.
#pragma once

#include <atomic>

#include "memory.hpp"
#include "object.hpp"

namespace softdriver {

class Context final : public Object {
 public:
  using Handle = ze_context_handle_t;
  static constexpr Kind kind_of = Kind::context;
  Context() : Object(kind_of) {}

  Allocations allocations;
  std::atomic<ze_npu_context_options_t> options{0};  // hints to hardware: kept, and nothing to do here
};

}  // namespace softdriver
