// OpenVINO IR (version 11) as the NPU plugin sends it: what its ports are, and how states become arguments.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "build_flags.hpp"
#include "element_type.hpp"

namespace softdriver::ir {

// Bytes that somebody else owns.
struct Bytes {
  const std::byte* data = nullptr;
  size_t size = 0;
};

// The two parts of a serialised model.
struct Container {
  std::string_view xml;
  Bytes weights;
};

// Takes apart what the plugin passes as a graph's input (format NGRAPH_LITE): compiler version, number of parts,
// then each part behind its size. Throws ModelError when the sizes do not add up.
Container unpack(Bytes input);

// One argument of the graph.
struct Port {
  std::string name;           // as the compiler names it; states begin with `state_input` or `state_output`
  std::string friendly_name;  // of the Parameter or Result
  std::vector<std::string> tensor_names;
  const ElementType* type = nullptr;
  std::vector<size_t> dims;

  // Bytes of a dense tensor.
  size_t size() const noexcept;
};

// By these the plugin knows the arguments that carry a state in and out. Both get the same buffer.
constexpr std::string_view state_input = "vpux_ie_read_value_";
constexpr std::string_view state_output = "vpux_ie_assign_";

// Where an output's value comes from.
struct Source {
  enum class Kind { computed, input, output } kind;
  size_t index;  // of OpenVINO's output, of the input or of the earlier output whose value it repeats
};

struct Prepared {
  std::string xml;  // what OpenVINO shall read: without states, with the wanted precisions
  std::vector<Port> inputs, outputs;
  std::vector<Source> sources;  // by output; when none is computed there is nothing for OpenVINO to do
};

// Reads the ports, makes each ReadValue an input and each Assign an output (after the model's own), and puts a
// conversion where the flags ask for another precision. Outputs that repeat an input or another output are taken out
// of the XML, because OpenVINO's requests take such ports for one and the same. Throws ModelError for what no graph
// can have: dynamic shapes, states that do not begin with zero, tensors of strings.
Prepared prepare(const Container& model, const BuildFlags& flags);

// The friendly names of all layers.
std::vector<std::string> layer_names(std::string_view xml);

// For each layer that computes something: a model of its own with that layer alone, its constants and parameters.
struct Probe {
  std::string name;
  std::string xml;
};
std::vector<Probe> single_layer_models(std::string_view xml);

}  // namespace softdriver::ir
