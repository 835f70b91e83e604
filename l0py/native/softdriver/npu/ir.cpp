#include "ir.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <unordered_map>

#include "model_error.hpp"
#include "xml.hpp"

namespace softdriver::ir {
namespace {

using xml::Element;

[[noreturn]] void malformed(const std::string& what) {
  throw ModelError(ModelError::Reason::bad_input, "the model is malformed: " + what);
}

[[noreturn]] void refuse(const std::string& what) { throw ModelError(ModelError::Reason::not_compiled, what); }

uint64_t parse_number(std::string_view text, const char* what) {
  uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    malformed(std::string(what) + " '" + std::string(text) + "' is not a number");
  }
  return value;
}

struct Edge {
  std::string from, from_port, to, to_port;
};

// The tree of one model, with the layers by id and the edges as values.
class Net {
 public:
  explicit Net(std::string_view text) : root_(xml::parse(text)) {
    layers_ = root_.find_child("layers");
    Element* edges = root_.find_child("edges");
    if (root_.name != "net" || layers_ == nullptr || edges == nullptr) {
      malformed("it is not an OpenVINO IR");
    }
    for (size_t i = 0; i < layers().size(); ++i) {
      const std::string& id = layers()[i].attribute("id");
      next_id_ = std::max(next_id_, parse_number(id, "layer id") + 1);
      if (!by_id_.emplace(id, i).second) {
        malformed("two layers have the id " + id);
      }
    }
    for (const Element& edge : edges->children) {
      edges_.push_back({edge.attribute("from-layer"), edge.attribute("from-port"), edge.attribute("to-layer"),
                        edge.attribute("to-port")});
      layer(edges_.back().from);
      layer(edges_.back().to);
    }
  }

  const auto& attributes() const { return root_.attributes; }
  std::vector<Element>& layers() { return layers_->children; }
  std::vector<Edge>& edges() { return edges_; }

  Element& layer(const std::string& id) {
    auto found = by_id_.find(id);
    if (found == by_id_.end()) {
      malformed("an edge names layer " + id + ", which does not exist");
    }
    return layers()[found->second];
  }

  std::string new_id() { return std::to_string(next_id_++); }

  // The edge into a layer's only input.
  Edge& edge_into(const Element& target) {
    const std::string& id = target.attribute("id");
    for (Edge& edge : edges_) {
      if (edge.to == id) {
        return edge;
      }
    }
    malformed("layer '" + target.attribute("name") + "' has no input");
  }

  // Takes a layer and the edges into it away; its place stays empty until `write`.
  void remove(const std::string& id) {
    layer(id) = Element();
    edges_.erase(std::remove_if(edges_.begin(), edges_.end(), [&id](const Edge& edge) { return edge.to == id; }),
                 edges_.end());
  }

  // Adds layers behind all others. Not before the walk over the layers is done: references become invalid.
  void append(std::vector<Element> added) {
    for (Element& element : added) {
      by_id_[element.attribute("id")] = layers().size();
      layers().push_back(std::move(element));
    }
  }

  // The text again. Layers without a name (moved-from ones) are left out.
  std::string write() {
    auto& all = layers();
    all.erase(std::remove_if(all.begin(), all.end(), [](const Element& e) { return e.name.empty(); }), all.end());
    Element& edges = *root_.find_child("edges");
    edges.children.clear();
    for (Edge& edge : edges_) {
      edges.children.push_back(
          {"edge",
           {{"from-layer", edge.from}, {"from-port", edge.from_port}, {"to-layer", edge.to}, {"to-port", edge.to_port}},
           {},
           {}});
    }
    return xml::write(root_);
  }

 private:
  Element root_;
  Element* layers_;
  std::unordered_map<std::string, size_t> by_id_;
  std::vector<Edge> edges_;
  uint64_t next_id_ = 0;
};

bool is(const Element& layer, std::string_view type) { return layer.attribute("type") == type; }

const Element& only_port(const Element& layer, const char* side) {
  const Element* ports = layer.find_child(side);
  if (ports == nullptr || ports->children.size() != 1) {
    malformed("layer '" + layer.attribute("name") + "' does not have one " + side + " port");
  }
  return ports->children.front();
}

const Element& output_port(const Element& layer, const std::string& id) {
  if (const Element* ports = layer.find_child("output")) {
    for (const Element& port : ports->children) {
      if (port.attribute("id") == id) {
        return port;
      }
    }
  }
  malformed("layer '" + layer.attribute("name") + "' has no output port " + id);
}

Element& data_of(Element& layer) {
  if (Element* data = layer.find_child("data")) {
    return *data;
  }
  malformed("layer '" + layer.attribute("name") + "' has no data");
}

const Element& data_of(const Element& layer) { return data_of(const_cast<Element&>(layer)); }

// "a,b\,c" holds two names.
std::vector<std::string> split_names(const std::string* list) {
  std::vector<std::string> names;
  if (list == nullptr || list->empty()) {
    return names;
  }
  names.emplace_back();
  for (size_t i = 0; i < list->size(); ++i) {
    const char c = (*list)[i];
    if (c == '\\' && i + 1 < list->size() && (*list)[i + 1] == ',') {
      names.back() += (*list)[++i];
    } else if (c == ',') {
      names.emplace_back();
    } else {
      names.back() += c;
    }
  }
  return names;
}

std::string shape_text(const Element& port) {
  std::string text;
  for (const Element& dim : port.children) {
    if (dim.name == "dim") {
      text += (text.empty() ? "" : ",") + (dim.text == "-1" ? "?" : dim.text);
    }
  }
  return text;
}

// Type and dimensions of a port; the rest is the caller's to fill.
Port read_port(const Element& port, const std::string& layer_name) {
  Port result;
  result.friendly_name = layer_name;
  const std::string& precision = port.attribute("precision");
  result.type = find_type_by_port(precision);
  if (result.type == nullptr) {
    refuse("the type " + precision + " of '" + layer_name + "' cannot be an argument of a graph");
  }
  size_t elements = 1;
  for (const Element& dim : port.children) {
    if (dim.name != "dim") {
      continue;
    }
    if (dim.text == "-1") {
      refuse("'" + layer_name + "' has the dynamic shape [" + shape_text(port) +
             "]; the graph needs static shapes, so reshape the model before it is compiled");
    }
    const uint64_t size = parse_number(dim.text, "dimension");
    // 2^40 elements are far more than any memory, and keep all later products inside 64 bits.
    if (size > (uint64_t{1} << 40) || (size != 0 && elements > (uint64_t{1} << 40) / size)) {
      refuse("'" + layer_name + "' is too large with the shape [" + shape_text(port) + "]");
    }
    result.dims.push_back(size);
    elements *= size;
  }
  return result;
}

// A port of the same dimensions. `names` only where tensors have names.
Element make_port(const char* id, const std::string& precision, const Element& like) {
  Element port{"port", {{"id", id}, {"precision", precision}}, {}, {}};
  for (const Element& dim : like.children) {
    if (dim.name == "dim") {
      port.children.push_back(dim);
    }
  }
  return port;
}

Element make_layer(std::string id, std::string name, const char* type) {
  return {"layer", {{"id", std::move(id)}, {"name", std::move(name)}, {"type", type}, {"version", "opset1"}}, {}, {}};
}

Element make_parameter(const std::string& id, const std::string& name, const Element& port) {
  const ElementType* type = find_type_by_port(port.attribute("precision"));
  Element layer = make_layer(id, name, "Parameter");
  layer.children.push_back(
      {"data", {{"shape", shape_text(port)}, {"element_type", type == nullptr ? "dynamic" : type->name}}, {}, {}});
  layer.children.push_back({"output", {}, {make_port("0", port.attribute("precision"), port)}, {}});
  return layer;
}

Element make_result(const std::string& id, const std::string& name, const Element& port) {
  Element layer = make_layer(id, name, "Result");
  layer.children.push_back({"input", {}, {make_port("0", port.attribute("precision"), port)}, {}});
  return layer;
}

bool holds_state(const Element& element) {
  const std::string* type = element.find_attribute("type");
  if (element.name == "layer" && type != nullptr && (*type == "ReadValue" || *type == "Assign")) {
    return true;
  }
  return std::any_of(element.children.begin(), element.children.end(), holds_state);
}

// The plugin clears a state when it makes and when it resets it: another first value could never be honoured.
void require_zero_start(Net& net, const Element& read, const Bytes& weights) {
  const Element* inputs = read.find_child("input");
  if (inputs == nullptr || inputs->children.empty()) {
    return;
  }
  const Element& source = net.layer(net.edge_into(read).from);
  if (!is(source, "Const")) {
    return;
  }
  const Element& data = data_of(source);
  const uint64_t offset = parse_number(data.attribute("offset"), "offset");
  const uint64_t size = parse_number(data.attribute("size"), "size");
  if (offset > weights.size || size > weights.size - offset) {
    malformed("constant '" + source.attribute("name") + "' lies outside the weights");
  }
  if (std::any_of(weights.data + offset, weights.data + offset + size, [](std::byte b) { return b != std::byte{}; })) {
    refuse("state '" + data_of(read).attribute("variable_id") +
           "' has a first value other than zero, but the NPU plugin begins every state with zero");
  }
}

struct State {
  std::string variable, read_id, assign_id;
};

State& state_of(std::vector<State>& states, const std::string& variable) {
  for (State& state : states) {
    if (state.variable == variable) {
      return state;
    }
  }
  states.push_back({variable, {}, {}});
  return states.back();
}

std::vector<State> find_states(Net& net) {
  std::vector<State> states;
  for (Element& layer : net.layers()) {
    const bool read = is(layer, "ReadValue");
    if (read || is(layer, "Assign")) {
      State& state = state_of(states, data_of(layer).attribute("variable_id"));
      std::string& id = read ? state.read_id : state.assign_id;
      if (!id.empty()) {
        refuse("state '" + state.variable + "' is " + (read ? "read" : "assigned") + " in two places");
      }
      id = layer.attribute("id");
    } else if (std::any_of(layer.children.begin(), layer.children.end(), holds_state)) {
      refuse("'" + layer.attribute("name") + "' keeps a state inside its body, which no argument can carry");
    }
  }
  for (const State& state : states) {
    if (state.read_id.empty()) {
      refuse("state '" + state.variable + "' is assigned but never read");
    }
  }
  return states;
}

// The layers of the arguments.
struct Ids {
  std::vector<std::string> inputs, outputs;
};

// Replaces a state's two layers by a Parameter and a Result with the same ids, behind all others.
void make_arguments(Net& net, const State& state, const Bytes& weights, Prepared& prepared, Ids& ids) {
  const Element& read = net.layer(state.read_id);
  require_zero_start(net, read, weights);
  const std::string read_name = read.attribute("name");
  const Element port = only_port(read, "output");
  for (Edge& edge : net.edges()) {
    if (edge.from == state.read_id) {
      edge.from_port = "0";
    }
  }
  net.remove(state.read_id);
  net.append({make_parameter(state.read_id, read_name, port)});

  // A state that is never assigned is carried through.
  Edge source{state.read_id, "0", net.new_id(), "0"};
  std::string assign_name = read_name + "/assign";
  if (!state.assign_id.empty()) {
    const Element& assign = net.layer(state.assign_id);
    assign_name = assign.attribute("name");
    source = net.edge_into(assign);
    source.to_port = "0";
    for (Edge& edge : net.edges()) {
      if (edge.from == state.assign_id) {
        edge.from = source.from;
        edge.from_port = source.from_port;
      }
    }
    net.remove(state.assign_id);
  }
  net.edges().push_back(source);
  net.append({make_result(source.to, assign_name, port)});

  Port argument = read_port(port, read_name);
  argument.name = std::string(state_input) + state.variable;
  prepared.inputs.push_back(argument);
  argument.friendly_name = assign_name;
  argument.name = std::string(state_output) + state.variable;
  prepared.outputs.push_back(argument);
  ids.inputs.push_back(state.read_id);
  ids.outputs.push_back(source.to);
}

// Makes the port take or give another type, with a Convert behind the Parameter or before the Result.
void convert(Net& net, const std::string& id, const ElementType& wanted, Port& port) {
  const ElementType& own = *port.type;
  Element& layer = net.layer(id);
  const bool input = is(layer, "Parameter");
  const Element like = only_port(layer, input ? "output" : "input");
  const ElementType& source = input ? wanted : own;
  const ElementType& target = input ? own : wanted;
  Element convert = make_layer(net.new_id(), port.friendly_name + "/convert", "Convert");
  const std::string& convert_id = convert.attribute("id");
  convert.children.push_back({"data", {{"destination_type", target.name}}, {}, {}});
  convert.children.push_back({"input", {}, {make_port("0", source.port, like)}, {}});
  convert.children.push_back({"output", {}, {make_port("1", target.port, like)}, {}});
  if (input) {
    data_of(layer).set_attribute("element_type", wanted.name);
    layer.find_child("output")->children.front().set_attribute("precision", wanted.port);
    for (Edge& edge : net.edges()) {
      if (edge.from == id) {
        edge.from = convert_id;
        edge.from_port = "1";
      }
    }
    net.edges().push_back({id, "0", convert_id, "0"});
  } else {
    layer.find_child("input")->children.front().set_attribute("precision", wanted.port);
    Edge& edge = net.edge_into(layer);
    Edge before{edge.from, edge.from_port, convert_id, "0"};
    edge.from = convert_id;
    edge.from_port = "1";
    net.edges().push_back(before);
  }
  port.type = &wanted;
  net.append({std::move(convert)});
}

// Converts the ports for which the flags ask another type. True when there was one.
bool apply_precisions(Net& net, const std::map<size_t, const ElementType*>& wanted, const std::vector<std::string>& ids,
                      std::vector<Port>& ports, const char* side) {
  bool changed = false;
  for (const auto& [index, type] : wanted) {
    if (index >= ports.size()) {
      throw ModelError(ModelError::Reason::bad_input, "the build flags give a precision to " + std::string(side) + " " +
                                                          std::to_string(index) + ", but the model has " +
                                                          std::to_string(ports.size()));
    }
    if (type != ports[index].type) {
      convert(net, ids[index], *type, ports[index]);
      changed = true;
    }
  }
  return changed;
}

// Tells computed outputs from repeated ones and takes the repeated ones out. True when there was one.
bool find_sources(Net& net, const Ids& ids, Prepared& prepared) {
  std::unordered_map<std::string, Source> known;  // by layer and port
  for (size_t i = 0; i < ids.inputs.size(); ++i) {
    known.emplace(ids.inputs[i] + ":0", Source{Source::Kind::input, i});
  }
  size_t computed = 0;
  for (size_t i = 0; i < ids.outputs.size(); ++i) {
    Element& layer = net.layer(ids.outputs[i]);
    const Edge& edge = net.edge_into(layer);
    auto found = known.find(edge.from + ":" + edge.from_port);
    if (found == known.end()) {
      known.emplace(edge.from + ":" + edge.from_port, Source{Source::Kind::output, i});
      prepared.sources.push_back({Source::Kind::computed, computed++});
      continue;
    }
    const Source source = found->second;
    const auto& ports = source.kind == Source::Kind::input ? prepared.inputs : prepared.outputs;
    if (ports[source.index].size() != prepared.outputs[i].size()) {
      malformed("'" + prepared.outputs[i].friendly_name + "' differs in size from what it repeats");
    }
    prepared.sources.push_back(source);
    net.remove(ids.outputs[i]);
  }
  return computed != ids.outputs.size();
}

Port read_result(Net& net, const Element& layer) {
  const std::string& name = layer.attribute("name");
  Port port = read_port(only_port(layer, "input"), name);
  const Edge& edge = net.edge_into(layer);
  const Element& source = net.layer(edge.from);
  const Element& source_port = output_port(source, edge.from_port);
  port.name = source.attribute("name");
  if (source.find_child("output")->children.size() > 1) {
    port.name += "." + std::to_string(&source_port - source.find_child("output")->children.data());
  }
  const std::string* own_names = layer.find_attribute("output_names");
  port.tensor_names = split_names(own_names != nullptr ? own_names : source_port.find_attribute("names"));
  return port;
}

}  // namespace

size_t Port::size() const noexcept {
  size_t elements = 1;
  for (size_t dim : dims) {
    elements *= dim;
  }
  return (elements * type->bits + 7) / 8;
}

Container unpack(Bytes input) {
  size_t position = 4;  // behind the compiler's version
  auto take = [&](void* into, size_t size, const char* what) {
    if (input.size < position || input.size - position < size) {
      malformed(std::string("it ends inside ") + what);
    }
    std::memcpy(into, input.data + position, size);
    position += size;
  };
  auto take_part = [&](const char* what) {
    uint64_t size = 0;
    take(&size, sizeof(size), what);
    if (size > input.size - position) {
      malformed(std::string("it ends inside ") + what);
    }
    Bytes part{input.data + position, static_cast<size_t>(size)};
    position += part.size;
    return part;
  };
  uint32_t parts = 0;
  take(&parts, sizeof(parts), "its header");
  if (parts != 2) {
    malformed("it has " + std::to_string(parts) + " parts instead of XML and weights");
  }
  const Bytes text = take_part("its XML");
  const Bytes weights = take_part("its weights");
  return {{reinterpret_cast<const char*>(text.data), text.size}, weights};
}

Prepared prepare(const Container& model, const BuildFlags& flags) {
  Net net(model.xml);
  Prepared prepared;
  Ids ids;
  for (const Element& layer : net.layers()) {
    if (is(layer, "Parameter")) {
      const Element& port = only_port(layer, "output");
      prepared.inputs.push_back(read_port(port, layer.attribute("name")));
      prepared.inputs.back().name = layer.attribute("name");
      prepared.inputs.back().tensor_names = split_names(port.find_attribute("names"));
      ids.inputs.push_back(layer.attribute("id"));
    } else if (is(layer, "Result")) {
      prepared.outputs.push_back(read_result(net, layer));
      ids.outputs.push_back(layer.attribute("id"));
    }
  }
  const std::vector<State> states = find_states(net);
  bool changed = !states.empty();
  changed |= apply_precisions(net, flags.input_precisions, ids.inputs, prepared.inputs, "input");
  changed |= apply_precisions(net, flags.output_precisions, ids.outputs, prepared.outputs, "output");
  for (const State& state : states) {
    make_arguments(net, state, model.weights, prepared, ids);
  }
  if (prepared.outputs.empty()) {
    refuse("the model has no output");
  }
  changed |= find_sources(net, ids, prepared);
  prepared.xml = changed ? net.write() : std::string(model.xml);
  return prepared;
}

std::vector<std::string> layer_names(std::string_view text) {
  std::vector<std::string> names;
  Net net(text);
  for (const Element& layer : net.layers()) {
    names.push_back(layer.attribute("name"));
  }
  return names;
}

std::vector<Probe> single_layer_models(std::string_view text) {
  Net net(text);
  std::unordered_map<std::string, std::vector<const Edge*>> edges_into;
  for (const Edge& edge : net.edges()) {
    edges_into[edge.to].push_back(&edge);
  }
  std::vector<Probe> probes;
  for (const Element& layer : net.layers()) {
    const auto plain = {"Const", "Parameter", "Result", "ReadValue", "Assign"};
    if (std::any_of(plain.begin(), plain.end(), [&](const char* type) { return is(layer, type); })) {
      continue;
    }
    const std::string& id = layer.attribute("id");
    Element layers{"layers", {}, {}, {}};
    Element edges{"edges", {}, {}, {}};
    auto connect = [&edges](const std::string& from, const std::string& from_port, const std::string& to,
                            const std::string& to_port) {
      edges.children.push_back(
          {"edge", {{"from-layer", from}, {"from-port", from_port}, {"to-layer", to}, {"to-port", to_port}}, {}, {}});
    };
    for (const Edge* edge : edges_into[id]) {
      const Element& source = net.layer(edge->from);
      Element feeder = source;
      std::string port = edge->from_port;
      if (!is(source, "Const")) {
        port = "0";
        feeder = make_parameter(net.new_id(), "in" + edge->to_port, output_port(source, edge->from_port));
      } else {
        feeder.set_attribute("id", net.new_id());
      }
      connect(feeder.attribute("id"), port, id, edge->to_port);
      layers.children.push_back(std::move(feeder));
    }
    layers.children.push_back(layer);
    if (const Element* outputs = layer.find_child("output")) {
      for (const Element& port : outputs->children) {
        Element result = make_result(net.new_id(), "out" + port.attribute("id"), port);
        connect(id, port.attribute("id"), result.attribute("id"), "0");
        layers.children.push_back(std::move(result));
      }
    }
    Element root{"net", net.attributes(), {std::move(layers), std::move(edges)}, {}};
    probes.push_back({layer.attribute("name"), xml::write(root)});
  }
  return probes;
}

}  // namespace softdriver::ir
