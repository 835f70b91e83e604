// Graphs: compiled models with argument values, and what the graph extension makes beside them.
#pragma once

#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "context.hpp"
#include "engine.hpp"
#include "fork.hpp"
#include "model_error.hpp"
#include "object.hpp"

namespace softdriver {

inline constexpr uint32_t graph_extension_version = ZE_GRAPH_EXT_VERSION_1_16;

class Graph final : public Object {
 public:
  using Handle = ze_graph_handle_t;
  static constexpr Kind kind_of = Kind::graph;
  Graph(std::shared_ptr<Context> context, std::shared_ptr<Model> model, bool precompiled);

  // The argument of that number; INVALID_ARGUMENT when there is none.
  const Argument& argument(uint32_t index) const;
  // What executions that are appended from now on shall use.
  void set_argument(uint32_t index, const void* pointer);
  std::vector<const void*> argument_values() const;

  const Home home;
  const std::shared_ptr<Context> context;
  const std::shared_ptr<Model> model;
  const bool precompiled;  // it came as a native binary

 private:
  mutable std::mutex mutex_;
  std::vector<const void*> values_;
};

// What the compiler said while it made a graph, or why it could not.
class BuildLog final : public Object {
 public:
  using Handle = ze_graph_build_log_handle_t;
  static constexpr Kind kind_of = Kind::build_log;
  explicit BuildLog(std::string text) : Object(kind_of), text(std::move(text)) {}
  const std::string text;
};

// The layers of a model that the device supports, as "<first><second>".
class QueryNetwork final : public Object {
 public:
  using Handle = ze_graph_query_network_handle_t;
  static constexpr Kind kind_of = Kind::query_network;
  explicit QueryNetwork(std::string layers) : Object(kind_of), layers(std::move(layers)) {}
  const std::string layers;
};

// The result code that a model's error is answered with; the words are the same.
Failure as_failure(const ModelError& error);

// A graph's input, checked.
ir::Bytes graph_input(const ze_graph_desc_2_t& desc);
// The older description, with the flags that it lacks.
ze_graph_desc_2_t upgrade(const ze_graph_desc_t& desc) noexcept;
// Intel's driver and this one read the precision of an argument in these numbers; UNKNOWN: there is none for the type.
ze_graph_argument_precision_t precision_of(const ElementType& type) noexcept;

// How texts and bytes are handed out: room 0 or nowhere to write asks for the size, too little room cuts the answer.
template <class Size>
void hand_out(const void* data, size_t size, Size* room, void* out, const char* name) {
  Size& count = require(room, name);
  const bool asks = count == 0 || out == nullptr;
  if (count == 0 || count > size) {
    count = static_cast<Size>(size);
  }
  if (!asks && count != 0) {
    std::memcpy(out, data, count);
  }
}

}  // namespace softdriver
