// The OpenVINO C library of the OpenVINO that the process has already loaded, and owners for its objects.
// Declared here because users who build the driver have no OpenVINO headers. Only what all releases agree on is
// used; the numbers of the element types, which changed between releases, are asked for and never written down.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "element_type.hpp"
#include "ir.hpp"

struct ov_core;
struct ov_model;
struct ov_compiled_model;
struct ov_infer_request;
struct ov_tensor;
struct ov_output_const_port;

namespace softdriver::openvino {

struct Deleter {
  void operator()(ov_model* object) const noexcept;
  void operator()(ov_compiled_model* object) const noexcept;
  void operator()(ov_infer_request* object) const noexcept;
  void operator()(ov_tensor* object) const noexcept;
};
template <class T>
using Owned = std::unique_ptr<T, Deleter>;

// All functions throw ModelError with OpenVINO's own words. The first call finds and loads the library; thread safe.
// In a child of the process that made that call, those that compile or compute throw Failure.

// `weights` must outlive everything that is made of the model.
Owned<ov_model> read_model(std::string_view xml, ir::Bytes weights);
Owned<ov_compiled_model> compile_for_cpu(const ov_model* model, bool profiling);
Owned<ov_infer_request> create_request(const ov_compiled_model* model);

// OpenVINO's number of an element type.
uint32_t type_number(const ElementType& type);

enum class Side { input, output };

struct PortShape {
  uint32_t type = 0;
  std::vector<size_t> dims;
};
// The ports that the compiled model really has.
std::vector<PortShape> ports(const ov_compiled_model* model, Side side);

// A tensor over memory that somebody else owns; one with memory of its own when `memory` is null.
Owned<ov_tensor> make_tensor(const ElementType& type, const std::vector<size_t>& dims, void* memory);
void* tensor_data(const ov_tensor* tensor);

void set_tensor(ov_infer_request* request, Side side, size_t index, const ov_tensor* tensor);
void infer(ov_infer_request* request);

// What one layer did. Its time is the average of all executions so far: the CPU plugin keeps no other.
struct LayerTime {
  enum class Status { not_run, optimized_out, executed };
  Status status = Status::not_run;
  std::string name, type;
  uint64_t wall_us = 0;
};
// Of a request of a model that was compiled with profiling, after `infer`.
std::vector<LayerTime> layer_times(const ov_infer_request* request);

}  // namespace softdriver::openvino
