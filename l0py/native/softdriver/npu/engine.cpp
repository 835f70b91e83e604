#include "engine.hpp"

#include <algorithm>
#include <cstring>

#include "model_error.hpp"

namespace softdriver {
namespace {

using openvino::Side;
using Kind = ir::Source::Kind;

// True for two ranges with a byte in common.
bool overlap(const void* first, size_t first_size, const void* second, size_t second_size) noexcept {
  const auto a = reinterpret_cast<uintptr_t>(first);
  const auto b = reinterpret_cast<uintptr_t>(second);
  return a < b + second_size && b < a + first_size;
}

}  // namespace

// An infer request and what it is bound to, so that an execution over the same memory binds nothing again.
struct Model::Request {
  openvino::Owned<ov_infer_request> request;
  std::vector<const void*> pointers;
  // By argument: the tensor that stands in for memory that an input shares; null where the memory itself is bound.
  std::vector<openvino::Owned<ov_tensor>> stand_ins;
};

Model::Model(ir::Bytes packed_ir, const std::string& build_flags, bool profiling)
    : binary_(NativeBinary::pack(ir::unpack(packed_ir), build_flags, profiling)) {
  compile();
}

Model::Model(ir::Bytes binary) : binary_(NativeBinary::read(binary)) { compile(); }

Model::~Model() = default;

void Model::compile() {
  const ir::Container source = binary_.model();
  const BuildFlags flags = parse_build_flags(binary_.build_flags());
  profiling_ = binary_.profiling() || flags.option_is("PERF_COUNT", "YES");
  ir::Prepared prepared = ir::prepare(source, flags);
  input_count_ = prepared.inputs.size();
  for (ir::Port& port : prepared.inputs) {
    sources_.push_back({Kind::input, arguments_.size()});
    arguments_.push_back({std::move(port), true});
  }
  for (ir::Port& port : prepared.outputs) {
    arguments_.push_back({std::move(port), false});
  }
  sources_.insert(sources_.end(), prepared.sources.begin(), prepared.sources.end());
  if (std::any_of(sources_.begin(), sources_.end(), [](const auto& s) { return s.kind == Kind::computed; })) {
    compiled_ = openvino::compile_for_cpu(openvino::read_model(prepared.xml, source.weights).get(), profiling_);
    check_ports();
  }
}

// What the XML says of a port decides how much memory an execution touches: it must be what OpenVINO will use.
void Model::check_ports() const {
  const std::vector<openvino::PortShape> inputs = openvino::ports(compiled_.get(), Side::input);
  const std::vector<openvino::PortShape> outputs = openvino::ports(compiled_.get(), Side::output);
  size_t computed = 0;
  bool same = inputs.size() == input_count_;
  for (size_t i = 0; same && i < arguments_.size(); ++i) {
    if (!arguments_[i].is_input && sources_[i].kind != Kind::computed) {
      continue;
    }
    same = arguments_[i].is_input || computed++ < outputs.size();
    if (same) {
      const openvino::PortShape& port = arguments_[i].is_input ? inputs[i] : outputs[computed - 1];
      same = port.dims == arguments_[i].dims && port.type == openvino::type_number(*arguments_[i].type);
    }
  }
  if (!same || computed != outputs.size()) {
    throw ModelError(ModelError::Reason::not_compiled,
                     "the ports that the model describes are not those that OpenVINO makes of it");
  }
}

std::unique_ptr<Model::Request> Model::take_request(const std::vector<const void*>& pointers) {
  {
    std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto found =
          std::find_if(idle_.begin(), idle_.end(), [&](const auto& request) { return request->pointers == pointers; });
      if (found == idle_.end()) {
        --found;
      }
      std::unique_ptr<Request> taken = std::move(*found);
      idle_.erase(found);
      return taken;
    }
  }
  return make_request();
}

std::unique_ptr<Model::Request> Model::make_request() const {
  auto made = std::make_unique<Request>();
  made->request = openvino::create_request(compiled_.get());
  made->pointers.resize(arguments_.size());
  made->stand_ins.resize(arguments_.size());
  return made;
}

bool Model::shares_input(size_t output, const std::vector<const void*>& pointers) const noexcept {
  for (size_t i = 0; i < input_count_; ++i) {
    if (overlap(pointers[output], arguments_[output].size(), pointers[i], arguments_[i].size())) {
      return true;
    }
  }
  return false;
}

void Model::bind(Request& request, const std::vector<const void*>& pointers) const {
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const Argument& argument = arguments_[i];
    const Side side = argument.is_input ? Side::input : Side::output;
    if (!argument.is_input && sources_[i].kind != Kind::computed) {
      continue;
    }
    if (!argument.is_input && shares_input(i, pointers)) {
      if (request.stand_ins[i] == nullptr) {
        request.stand_ins[i] = openvino::make_tensor(*argument.type, argument.dims, nullptr);
        openvino::set_tensor(request.request.get(), side, sources_[i].index, request.stand_ins[i].get());
      }
    } else if (request.pointers[i] != pointers[i] || request.stand_ins[i] != nullptr) {
      // The library wants writable pointers but only reads inputs.
      const auto tensor = openvino::make_tensor(*argument.type, argument.dims, const_cast<void*>(pointers[i]));
      openvino::set_tensor(request.request.get(), side, sources_[i].index, tensor.get());
      request.stand_ins[i].reset();
    }
  }
  request.pointers = pointers;
}

void Model::execute(const std::vector<const void*>& pointers, std::vector<openvino::LayerTime>* times) {
  if (pointers.size() != arguments_.size()) {
    throw ModelError(ModelError::Reason::not_executed, "an execution needs one address for each argument");
  }
  for (size_t i = 0; i < pointers.size(); ++i) {
    if (pointers[i] == nullptr) {
      throw ModelError(ModelError::Reason::not_executed,
                       "argument " + std::to_string(i) + " ('" + arguments_[i].name + "') has no memory");
    }
  }
  // When anything below throws, the request is dropped: what it is bound to is not known any more.
  std::unique_ptr<Request> request;
  if (compiled_ != nullptr) {
    request = take_request(pointers);
    bind(*request, pointers);
    openvino::infer(request->request.get());
    if (times != nullptr && profiling_) {
      *times = openvino::layer_times(request->request.get());
    }
  }
  write_repeated(request.get(), pointers);
  if (request != nullptr) {
    std::lock_guard lock(mutex_);
    idle_.push_back(std::move(request));
  }
}

void Model::write_repeated(const Request* request, const std::vector<const void*>& pointers) const {
  auto output = [&](size_t i) { return const_cast<void*>(pointers[input_count_ + i]); };
  const size_t count = arguments_.size() - input_count_;
  const ir::Source* sources = sources_.data() + input_count_;
  const Argument* arguments = arguments_.data() + input_count_;

  const bool repeats =
      std::any_of(sources, sources + count, [](const ir::Source& source) { return source.kind != Kind::computed; });
  const bool stands_in = request != nullptr && std::any_of(request->stand_ins.begin(), request->stand_ins.end(),
                                                           [](const auto& tensor) { return tensor != nullptr; });
  if (!repeats && !stands_in) {
    return;
  }
  // All inputs are read before one of them is overwritten.
  std::vector<std::vector<std::byte>> staged(count);
  for (size_t i = 0; i < count; ++i) {
    const void* from = sources[i].kind == Kind::input ? pointers[sources[i].index] : nullptr;
    if (from == nullptr || from == output(i)) {
      continue;
    }
    if (shares_input(input_count_ + i, pointers)) {
      const auto* bytes = static_cast<const std::byte*>(from);
      staged[i].assign(bytes, bytes + arguments[i].size());
    } else {
      std::memcpy(output(i), from, arguments[i].size());
    }
  }
  for (size_t i = 0; i < count; ++i) {
    if (request != nullptr && request->stand_ins[input_count_ + i] != nullptr) {
      std::memcpy(output(i), openvino::tensor_data(request->stand_ins[input_count_ + i].get()), arguments[i].size());
    } else if (!staged[i].empty()) {
      std::memcpy(output(i), staged[i].data(), staged[i].size());
    }
  }
  for (size_t i = 0; i < count; ++i) {
    if (sources[i].kind == Kind::output) {
      std::memmove(output(i), output(sources[i].index), arguments[i].size());
    }
  }
}

void Model::warm_up() {
  std::lock_guard lock(mutex_);
  if (compiled_ != nullptr && idle_.empty()) {
    idle_.push_back(make_request());
  }
}

void Model::evict() {
  std::vector<std::unique_ptr<Request>> dropped;
  std::lock_guard lock(mutex_);
  dropped.swap(idle_);
}

std::vector<std::string> supported_layers(ir::Bytes packed_ir, const std::string& build_flags) {
  const ir::Container source = ir::unpack(packed_ir);
  const BuildFlags flags = parse_build_flags(build_flags);
  std::vector<std::string> names = ir::layer_names(source.xml);
  // `make_xml` may itself find that the model cannot be a graph.
  auto compiles = [&](const auto& make_xml) {
    try {
      openvino::compile_for_cpu(openvino::read_model(make_xml(), source.weights).get(), false);
      return true;
    } catch (const ModelError& error) {
      if (error.reason != ModelError::Reason::not_compiled) {
        throw;
      }
      return false;
    }
  };
  if (compiles([&] { return ir::prepare(source, flags).xml; })) {
    return names;
  }
  for (const ir::Probe& probe : ir::single_layer_models(source.xml)) {
    if (!compiles([&] { return probe.xml; })) {
      names.erase(std::remove(names.begin(), names.end(), probe.name), names.end());
    }
  }
  return names;
}

}  // namespace softdriver
