// Compiled models: OpenVINO IR in, execution on the CPU over memory that the caller names, no copy in between.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "build_flags.hpp"
#include "ir.hpp"
#include "native_binary.hpp"
#include "openvino.hpp"

namespace softdriver {

struct Argument : ir::Port {
  bool is_input = false;
};

// Thread safe; executions on several threads at once use an infer request each.
// Everything throws ModelError, whose text is OpenVINO's own where OpenVINO refused.
class Model {
 public:
  // From what the plugin sends: the packed IR and its build flags. `profiling`: as the option PERF_COUNT.
  Model(ir::Bytes packed_ir, const std::string& build_flags, bool profiling);
  // From a native binary, which is copied.
  explicit Model(ir::Bytes binary);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // Inputs, then outputs; the order of the pointers of an execution.
  const std::vector<Argument>& arguments() const noexcept { return arguments_; }

  // The native binary; valid as long as the model.
  ir::Bytes serialize() const noexcept { return binary_.bytes(); }

  // Runs the model over dense tensors at these addresses and returns when the outputs are written. An output that
  // shares memory with an input is written only after the execution, so states may be updated in place.
  void execute(const std::vector<const void*>& pointers, std::vector<openvino::LayerTime>* times = nullptr);

  bool profiling() const noexcept { return profiling_; }

  // Makes now what the first execution would have to make.
  void warm_up();
  // Gives back what executions keep for the next one.
  void evict();

 private:
  struct Request;

  void compile();
  void check_ports() const;
  bool shares_input(size_t output, const std::vector<const void*>& pointers) const noexcept;
  std::unique_ptr<Request> make_request() const;
  std::unique_ptr<Request> take_request(const std::vector<const void*>& pointers);
  void bind(Request& request, const std::vector<const void*>& pointers) const;
  // Writes what the infer request did not write itself: stand-ins, and outputs that repeat something.
  void write_repeated(const Request* request, const std::vector<const void*>& pointers) const;

  // Declared before what uses its bytes, so destroyed after it.
  const NativeBinary binary_;
  bool profiling_ = false;
  std::vector<Argument> arguments_;
  std::vector<ir::Source> sources_;  // by argument; inputs are their own
  size_t input_count_ = 0;
  openvino::Owned<ov_compiled_model> compiled_;  // null when all outputs repeat inputs
  std::mutex mutex_;
  std::vector<std::unique_ptr<Request>> idle_;
};

// The friendly names of the layers that a model could be compiled with: all, or those that compile alone.
std::vector<std::string> supported_layers(ir::Bytes packed_ir, const std::string& build_flags);

}  // namespace softdriver
