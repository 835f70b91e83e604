// Profiling data of graph executions: pools of queries, each with the layers' times of its last execution.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "fork.hpp"
#include "object.hpp"
#include "openvino.hpp"
#include "places.hpp"

namespace softdriver {

class ProfilingPool final : public Object {
 public:
  using Handle = ze_graph_profiling_pool_handle_t;
  static constexpr Kind kind_of = Kind::profiling_pool;
  explicit ProfilingPool(uint32_t count) : Object(kind_of), places(count, ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE) {}

  Places places;
};

class ProfilingQuery final : public Object {
 public:
  using Handle = ze_graph_profiling_query_handle_t;
  static constexpr Kind kind_of = Kind::profiling_query;
  ProfilingQuery(std::shared_ptr<ProfilingPool> pool, uint32_t index);

  // Around an execution, on a queue's worker.
  void start();
  void finish(std::vector<openvino::LayerTime> times);

  // What the last finished execution left, as records of the extension.
  std::vector<ze_profiling_layer_info> layers() const;
  std::vector<ze_profiling_task_info> tasks() const;

  const Home home;
  const std::shared_ptr<ProfilingPool> pool;
  const uint32_t index;

 private:
  mutable std::mutex mutex_;
  uint64_t begin_ = 0;  // device ticks
  std::vector<openvino::LayerTime> times_;
};

}  // namespace softdriver
