// What is made of a model before OpenVINO sees it.
#include <cstring>

#include "damage.hpp"
#include "ir.hpp"

using check::refuses;
using softdriver::BuildFlags;
using softdriver::find_type;
using softdriver::ir::Bytes;
using softdriver::ir::Container;
using softdriver::ir::layer_names;
using softdriver::ir::prepare;
using softdriver::ir::Prepared;
using softdriver::ir::single_layer_models;
using softdriver::ir::Source;
using softdriver::ir::unpack;

namespace {

std::string port(const char* id, const std::string& dims, const char* precision = "FP32") {
  return "<port id=\"" + std::string(id) + "\" precision=\"" + precision + "\" names=\"t\">" + dims + "</port>";
}

std::string layer(const char* id, const char* name, const char* type, const std::string& body) {
  return "<layer id=\"" + std::string(id) + "\" name=\"" + name + "\" type=\"" + type + "\" version=\"opset1\">" +
         body + "</layer>";
}

std::string edge(const char* from, const char* from_port, const char* to, const char* to_port) {
  return "<edge from-layer=\"" + std::string(from) + "\" from-port=\"" + from_port + "\" to-layer=\"" + to +
         "\" to-port=\"" + to_port + "\"/>";
}

std::string net(const std::string& layers, const std::string& edges) {
  return "<?xml version=\"1.0\"?><net name=\"n\" version=\"11\"><layers>" + layers + "</layers><edges>" + edges +
         "</edges></net>";
}

const std::string shape = "<dim>2</dim><dim>3</dim>";

std::string parameter(const std::string& dims = shape) {
  return layer("0", "x", "Parameter",
               "<data shape=\"2,3\" element_type=\"f32\"/><output>" + port("0", dims) + "</output>");
}

std::string result(const char* id = "2") {
  return layer(id, "y/sink", "Result", "<input>" + port("0", shape) + "</input>");
}

const std::string relu =
    layer("1", "y", "ReLU", "<input>" + port("0", shape) + "</input><output>" + port("1", shape) + "</output>");
const std::string one_op = net(parameter() + relu + result(), edge("0", "0", "1", "0") + edge("1", "1", "2", "0"));

// x is added to a state, which is read and assigned.
std::string stateful() {
  const std::string data = "<data variable_id=\"v\" variable_type=\"f32\" variable_shape=\"2,3\"/>";
  const std::string in = "<input>" + port("0", shape) + "</input>";
  return net(
      parameter() +
          layer("3", "zero", "Const",
                "<data element_type=\"f32\" shape=\"2,3\" offset=\"0\" size=\"24\"/>"
                "<output>" +
                    port("0", shape) + "</output>") +
          layer("4", "read", "ReadValue", data + in + "<output>" + port("1", shape) + "</output>") +
          layer("1", "y", "Add",
                "<input>" + port("0", shape) + port("1", shape) + "</input><output>" + port("2", shape) + "</output>") +
          layer("5", "assign", "Assign", data + in + "<output>" + port("1", shape) + "</output>") + result(),
      edge("3", "0", "4", "0") + edge("0", "0", "1", "0") + edge("4", "1", "1", "1") + edge("1", "2", "5", "0") +
          edge("1", "2", "2", "0"));
}

const std::string zeros(24, '\0');

Prepared prepare_text(const std::string& xml, const BuildFlags& flags = {}, const std::string& weights = zeros) {
  return prepare({xml, {reinterpret_cast<const std::byte*>(weights.data()), weights.size()}}, flags);
}

bool refused(const std::string& xml, const BuildFlags& flags = {}) {
  return refuses([&] { prepare_text(xml, flags); });
}

std::string packed(const std::string& xml, const std::string& weights) {
  std::string out(4, '\1');
  const uint32_t parts = 2;
  out.append(reinterpret_cast<const char*>(&parts), sizeof parts);
  for (const std::string& part : {xml, weights}) {
    const uint64_t size = part.size();
    out.append(reinterpret_cast<const char*>(&size), sizeof size);
    out += part;
  }
  return out;
}

Bytes bytes_of(const std::string& text) { return {reinterpret_cast<const std::byte*>(text.data()), text.size()}; }

}  // namespace

TEST(unpacking) {
  const std::string input = packed("<net/>", "abc");
  const Container model = unpack(bytes_of(input));
  CHECK(model.xml == "<net/>" && model.weights.size == 3);
  for (size_t size = 0; size < input.size(); ++size) {
    const std::string cut = input.substr(0, size);
    CHECK(refuses([&] { unpack(bytes_of(cut)); }));
  }
  std::string huge = input;
  std::memset(huge.data() + 8, 0xff, 8);
  CHECK(refuses([&] { unpack(bytes_of(huge)); }));
}

TEST(ports) {
  const Prepared prepared = prepare_text(one_op);
  CHECK(prepared.xml == one_op);
  CHECK(prepared.inputs.size() == 1 && prepared.outputs.size() == 1);
  CHECK(prepared.inputs[0].name == "x" && prepared.inputs[0].size() == 24);
  CHECK(prepared.outputs[0].name == "y" && prepared.outputs[0].friendly_name == "y/sink");
  CHECK(prepared.outputs[0].tensor_names == std::vector<std::string>{"t"});
  CHECK(prepared.sources[0].kind == Source::Kind::computed);
  CHECK(layer_names(one_op) == std::vector<std::string>({"x", "y", "y/sink"}));
}

TEST(other_precisions) {
  BuildFlags flags;
  flags.input_precisions[0] = find_type("u8");
  flags.output_precisions[0] = find_type("f16");
  const Prepared prepared = prepare_text(one_op, flags);
  CHECK(prepared.inputs[0].size() == 6 && prepared.outputs[0].size() == 12);
  CHECK(prepared.xml.find("x/convert") != std::string::npos &&
        prepared.xml.find("y/sink/convert") != std::string::npos);
  CHECK(prepare_text(prepared.xml).inputs[0].type == find_type("u8"));
  flags.input_precisions[1] = find_type("u8");
  CHECK(refused(one_op, flags));
}

TEST(a_parameter_without_data) {
  const std::string bare =
      net(layer("0", "x", "Parameter", "<output>" + port("0", shape) + "</output>") + relu + result(),
          edge("0", "0", "1", "0") + edge("1", "1", "2", "0"));
  BuildFlags flags;
  flags.input_precisions[0] = find_type("u8");
  CHECK(refused(bare, flags));
}

TEST(states_become_arguments) {
  const Prepared prepared = prepare_text(stateful());
  CHECK(prepared.inputs.size() == 2 && prepared.outputs.size() == 2);
  CHECK(prepared.inputs[1].name == "vpux_ie_read_value_v" && prepared.outputs[1].name == "vpux_ie_assign_v");
  CHECK(prepared.xml.find("ReadValue") == std::string::npos && prepared.xml.find("Assign") == std::string::npos);
  CHECK(prepared.sources[1].kind == Source::Kind::output && prepared.sources[1].index == 0);
  CHECK(refuses([] { prepare_text(stateful(), {}, std::string(24, '\1')); }));
  CHECK(refuses([] { prepare_text(stateful(), {}, std::string(23, '\0')); }));
}

TEST(outputs_that_repeat_an_input) {
  const Prepared prepared = prepare_text(net(parameter() + result(), edge("0", "0", "2", "0")));
  CHECK(prepared.sources[0].kind == Source::Kind::input && prepared.sources[0].index == 0);
}

TEST(what_no_graph_can_have) {
  const std::string edges = edge("0", "0", "1", "0") + edge("1", "1", "2", "0");
  auto with_shape = [&](const std::string& dims) { return net(parameter(dims) + relu + result(), edges); };
  CHECK(refused(with_shape("<dim>-1</dim>")));
  CHECK(refused(with_shape("<dim>x</dim>")));
  CHECK(refused(with_shape("<dim>99999999999999999999</dim>")));
  CHECK(refused(with_shape("<dim>1000000</dim><dim>1000000</dim><dim>1000000</dim>")));
  CHECK(!refused(with_shape("")));
  CHECK(!refused(with_shape("<dim>0</dim><dim>1000000</dim><dim>1000000</dim><dim>1000000</dim>")));
  CHECK(refused("<net><layers/></net>") && refused("<net><layers/><edges/></net>") && refused("<other/>"));
  CHECK(refused(net(parameter() + parameter() + relu + result(), edges)));
  CHECK(refused(net(parameter() + relu, edges)));
  CHECK(refused(net(parameter() + relu + result(), edge("0", "0", "1", "0"))));
  CHECK(refused(net(parameter() + relu + result(), edge("0", "0", "1", "0") + edge("1", "9", "2", "0"))));
}

TEST(models_of_one_layer) {
  const auto probes = single_layer_models(stateful());
  CHECK(probes.size() == 1 && probes[0].name == "y");
  const Prepared prepared = prepare_text(probes[0].xml);
  CHECK(prepared.inputs.size() == 2 && prepared.outputs.size() == 1);
}

TEST(damaged_models) {
  check::Damage damage(4);
  BuildFlags flags;
  flags.input_precisions[0] = find_type("f16");
  flags.output_precisions[0] = find_type("f16");
  size_t taken = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::string damaged = damage.apply(i % 2 == 0 ? one_op : stateful(), "0123456789-\"<>");
    taken += refuses([&] {
      const Prepared prepared = prepare_text(damaged, flags);
      CHECK(prepared.sources.size() == prepared.outputs.size());
      CHECK(!prepare_text(prepared.xml).outputs.empty());
    })
                 ? 0
                 : 1;
    refuses([&] { single_layer_models(damaged); });
    refuses([&] { layer_names(damaged); });
  }
  CHECK(taken > 0 && taken < 3000);
}

// Damage to letters hardly ever leaves well-formed XML; whole pieces taken out or doubled do.
TEST(models_with_pieces_missing_or_doubled) {
  const std::string text = stateful();
  check::Damage damage(5);
  BuildFlags flags;
  flags.input_precisions[0] = find_type("f16");
  flags.output_precisions[0] = find_type("f16");
  for (int i = 0; i < 3000; ++i) {
    std::string changed = text;
    for (size_t changes = 1 + damage.below(3); changes > 0; --changes) {
      const size_t from = changed.find('<', damage.below(changed.size()));
      const size_t to = from == std::string::npos ? from : changed.find("/>", from);
      if (to != std::string::npos) {
        const std::string piece = changed.substr(from, to + 2 - from);
        changed = damage.below(2) == 0 ? changed.erase(from, piece.size()) : changed.insert(from, piece);
      }
    }
    refuses([&] { prepare_text(changed, flags); });
    refuses([&] { single_layer_models(changed); });
  }
}
