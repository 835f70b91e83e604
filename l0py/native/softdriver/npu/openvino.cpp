#include "openvino.hpp"

#include <map>
#include <mutex>

#include "fork.hpp"
#include "model_error.hpp"
#include "result.hpp"
#include "shared_library.hpp"

// The C interface, as far as it is used. `ov_status_e` is an int of which 0 means success.
struct ov_shape {
  int64_t rank;
  int64_t* dims;
};
struct ov_profiling_info {
  int status;
  int64_t real_time, cpu_time;
  const char *node_name, *exec_type, *node_type;
};
struct ov_profiling_info_list {
  ov_profiling_info* infos;
  size_t size;
};

namespace softdriver::openvino {
namespace {

using Reason = ModelError::Reason;

#ifdef _WIN32
constexpr char core_file[] = "openvino.dll";
#else
constexpr char core_file[] = "libopenvino.so";
#endif

struct Functions {
  const char* (*get_error_info)(int);
  const char* (*get_last_err_msg)();
  void (*free)(const char*);
  int (*core_create)(ov_core**);
  int (*core_read_model_from_memory_buffer)(const ov_core*, const char*, size_t, const ov_tensor*, ov_model**);
  int (*core_compile_model)(const ov_core*, const ov_model*, const char*, size_t, ov_compiled_model**, ...);
  void (*model_free)(ov_model*);
  int (*model_const_input_by_index)(const ov_model*, size_t, ov_output_const_port**);
  void (*compiled_model_free)(ov_compiled_model*);
  int (*compiled_model_inputs_size)(const ov_compiled_model*, size_t*);
  int (*compiled_model_outputs_size)(const ov_compiled_model*, size_t*);
  int (*compiled_model_input_by_index)(const ov_compiled_model*, size_t, ov_output_const_port**);
  int (*compiled_model_output_by_index)(const ov_compiled_model*, size_t, ov_output_const_port**);
  int (*compiled_model_create_infer_request)(const ov_compiled_model*, ov_infer_request**);
  int (*const_port_get_shape)(const ov_output_const_port*, ov_shape*);
  int (*port_get_element_type)(const ov_output_const_port*, uint32_t*);
  void (*output_const_port_free)(ov_output_const_port*);
  int (*shape_free)(ov_shape*);
  int (*tensor_create)(uint32_t, ov_shape, ov_tensor**);
  int (*tensor_create_from_host_ptr)(uint32_t, ov_shape, void*, ov_tensor**);
  int (*tensor_data)(const ov_tensor*, void**);
  void (*tensor_free)(ov_tensor*);
  void (*infer_request_free)(ov_infer_request*);
  int (*infer_request_set_input_tensor_by_index)(ov_infer_request*, size_t, const ov_tensor*);
  int (*infer_request_set_output_tensor_by_index)(ov_infer_request*, size_t, const ov_tensor*);
  int (*infer_request_infer)(ov_infer_request*);
  int (*infer_request_get_profiling_info)(const ov_infer_request*, ov_profiling_info_list*);
  void (*profiling_info_list_free)(ov_profiling_info_list*);
};

template <class Function>
void load(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(platform::find_symbol(library, name));
  if (function == nullptr) {
    throw ModelError(Reason::no_openvino, std::string("the OpenVINO C library lacks ") + name);
  }
}

Functions load_functions() {
  const std::string core = platform::loaded_library_path(core_file);
  if (core.empty()) {
    throw ModelError(Reason::no_openvino,
                     "no OpenVINO in this process: the software driver runs graphs with the OpenVINO that called it, "
                     "so load OpenVINO (in Python: import openvino) before a graph is made");
  }
  // libopenvino.so.2641 lies beside libopenvino_c.so.2641.
  std::string path = core;
  path.insert(path.find('.', path.find_last_of("/\\") + 1), "_c");
  void* library = platform::open_library(path.c_str());
  if (library == nullptr) {
    throw ModelError(Reason::no_openvino, "OpenVINO is loaded from " + core + ", but not its C library " + path + ": " +
                                              platform::library_error());
  }
  Functions f{};
  load(library, "ov_get_error_info", f.get_error_info);
  load(library, "ov_get_last_err_msg", f.get_last_err_msg);
  load(library, "ov_free", f.free);
  load(library, "ov_core_create", f.core_create);
  load(library, "ov_core_read_model_from_memory_buffer", f.core_read_model_from_memory_buffer);
  load(library, "ov_core_compile_model", f.core_compile_model);
  load(library, "ov_model_free", f.model_free);
  load(library, "ov_model_const_input_by_index", f.model_const_input_by_index);
  load(library, "ov_compiled_model_free", f.compiled_model_free);
  load(library, "ov_compiled_model_inputs_size", f.compiled_model_inputs_size);
  load(library, "ov_compiled_model_outputs_size", f.compiled_model_outputs_size);
  load(library, "ov_compiled_model_input_by_index", f.compiled_model_input_by_index);
  load(library, "ov_compiled_model_output_by_index", f.compiled_model_output_by_index);
  load(library, "ov_compiled_model_create_infer_request", f.compiled_model_create_infer_request);
  load(library, "ov_const_port_get_shape", f.const_port_get_shape);
  load(library, "ov_port_get_element_type", f.port_get_element_type);
  load(library, "ov_output_const_port_free", f.output_const_port_free);
  load(library, "ov_shape_free", f.shape_free);
  load(library, "ov_tensor_create", f.tensor_create);
  load(library, "ov_tensor_create_from_host_ptr", f.tensor_create_from_host_ptr);
  load(library, "ov_tensor_data", f.tensor_data);
  load(library, "ov_tensor_free", f.tensor_free);
  load(library, "ov_infer_request_free", f.infer_request_free);
  load(library, "ov_infer_request_set_input_tensor_by_index", f.infer_request_set_input_tensor_by_index);
  load(library, "ov_infer_request_set_output_tensor_by_index", f.infer_request_set_output_tensor_by_index);
  load(library, "ov_infer_request_infer", f.infer_request_infer);
  load(library, "ov_infer_request_get_profiling_info", f.infer_request_get_profiling_info);
  load(library, "ov_profiling_info_list_free", f.profiling_info_list_free);
  return f;
}

// What is given back to the library by a function of its own.
template <class T, class Free>
std::unique_ptr<T, Free> owned(T* object, Free free) noexcept {
  return {object, free};
}

void check(const Functions& f, int status, Reason reason, const char* action) {
  if (status == 0) {
    return;
  }
  std::string text;
  if (const auto message = owned(f.get_last_err_msg(), f.free)) {
    text = message.get();
  }
  if (text.empty()) {
    text = f.get_error_info(status);
  }
  throw ModelError(reason, std::string("OpenVINO could not ") + action + ": " + text);
}

// The functions and the one core, which lives as long as the process: the plugin destroys graphs while the process
// exits, when static objects of OpenVINO may be gone already, and a core cannot be destroyed twice or too late.
struct Library {
  Functions f;
  ov_core* core = nullptr;
  const Home home;
};

Library& library() {
  static Library& instance = *[] {
    auto made = std::make_unique<Library>();
    made->f = load_functions();
    check(made->f, made->f.core_create(&made->core), Reason::no_openvino, "create its core");
    return made.release();
  }();
  return instance;
}

// The library for what makes its threads work. Those do not come along through a fork, and what they held stays locked:
// a forked child would hang, though not always.
const Library& working_library() {
  const Library& ov = library();
  if (ov.home.left()) {
    throw Failure(ZE_RESULT_ERROR_UNINITIALIZED,
                  "OpenVINO was in use before the fork and does not go on in the forked child: use the NPU in one of "
                  "the two only, or start the child anew (multiprocessing's \"spawn\")");
  }
  return ov;
}

// What frees an object of the library, which was loaded before the object was made: nothing is left to throw.
const Functions& loaded() noexcept { return library().f; }  // NOLINT(bugprone-exception-escape)

// A port that was fetched from a model.
class ConstPort {
 public:
  ConstPort() = default;
  ConstPort(const ConstPort&) = delete;
  ConstPort& operator=(const ConstPort&) = delete;
  ~ConstPort() {
    if (port != nullptr) {
      loaded().output_const_port_free(port);
    }
  }
  ov_output_const_port* port = nullptr;

  uint32_t type() const {
    uint32_t number = 0;
    const Functions& f = library().f;
    check(f, f.port_get_element_type(port, &number), Reason::not_compiled, "tell the type of a port");
    return number;
  }
};

ov_shape as_shape(std::vector<int64_t>& dims) { return {static_cast<int64_t>(dims.size()), dims.data()}; }

}  // namespace

void Deleter::operator()(ov_model* object) const noexcept { loaded().model_free(object); }
void Deleter::operator()(ov_compiled_model* object) const noexcept { loaded().compiled_model_free(object); }
void Deleter::operator()(ov_infer_request* object) const noexcept { loaded().infer_request_free(object); }
void Deleter::operator()(ov_tensor* object) const noexcept { loaded().tensor_free(object); }

Owned<ov_model> read_model(std::string_view xml, ir::Bytes weights) {
  const Library& ov = working_library();
  Owned<ov_tensor> tensor;
  if (weights.size != 0) {
    // The library wants a writable pointer but only reads constants.
    tensor = make_tensor(*find_type("u8"), {weights.size}, const_cast<std::byte*>(weights.data));
  }
  ov_model* model = nullptr;
  check(ov.f, ov.f.core_read_model_from_memory_buffer(ov.core, xml.data(), xml.size(), tensor.get(), &model),
        Reason::not_compiled, "read the model");
  return Owned<ov_model>(model);
}

Owned<ov_compiled_model> compile_for_cpu(const ov_model* model, bool profiling) {
  const Library& ov = working_library();
  ov_compiled_model* compiled = nullptr;
  // Exactly: where the CPU has bf16, the plugin would compute what is f32 in that.
  const int status =
      profiling ? ov.f.core_compile_model(ov.core, model, "CPU", 4, &compiled, "INFERENCE_PRECISION_HINT", "f32",
                                          "PERF_COUNT", "YES")
                : ov.f.core_compile_model(ov.core, model, "CPU", 2, &compiled, "INFERENCE_PRECISION_HINT", "f32");
  check(ov.f, status, Reason::not_compiled, "compile the model");
  return Owned<ov_compiled_model>(compiled);
}

Owned<ov_infer_request> create_request(const ov_compiled_model* model) {
  const Functions& f = working_library().f;
  ov_infer_request* request = nullptr;
  check(f, f.compiled_model_create_infer_request(model, &request), Reason::not_executed, "create an infer request");
  return Owned<ov_infer_request>(request);
}

uint32_t type_number(const ElementType& type) {
  working_library();  // in a forked child the lock may be held for ever
  static std::mutex mutex;
  static auto& known = *new std::map<const ElementType*, uint32_t>;  // for the same reason as the core
  {
    std::lock_guard lock(mutex);
    auto found = known.find(&type);
    if (found != known.end()) {
      return found->second;
    }
  }
  const std::string port = std::string("port id=\"0\" precision=\"") + type.port + "\"";
  const std::string xml = std::string(R"(<?xml version="1.0"?><net name="type" version="11"><layers>)") +
                          R"(<layer id="0" name="in" type="Parameter" version="opset1"><data shape="" element_type=")" +
                          type.name + R"("/><output><)" + port + R"(/></output></layer>)" +
                          R"(<layer id="1" name="out" type="Result" version="opset1"><input><)" + port +
                          R"(/></input></layer></layers>)" +
                          R"(<edges><edge from-layer="0" from-port="0" to-layer="1" to-port="0"/></edges></net>)";
  const Owned<ov_model> model = read_model(xml, {});
  const Functions& f = library().f;
  ConstPort input;
  check(f, f.model_const_input_by_index(model.get(), 0, &input.port), Reason::not_compiled, "show a port");
  const uint32_t number = input.type();
  std::lock_guard lock(mutex);
  known.emplace(&type, number);
  return number;
}

std::vector<PortShape> ports(const ov_compiled_model* model, Side side) {
  const Functions& f = library().f;
  const bool input = side == Side::input;
  size_t count = 0;
  check(f, (input ? f.compiled_model_inputs_size : f.compiled_model_outputs_size)(model, &count), Reason::not_compiled,
        "count the ports");
  std::vector<PortShape> found(count);
  for (size_t i = 0; i < count; ++i) {
    ConstPort port;
    check(f, (input ? f.compiled_model_input_by_index : f.compiled_model_output_by_index)(model, i, &port.port),
          Reason::not_compiled, "show a port");
    found[i].type = port.type();
    ov_shape shape{};
    check(f, f.const_port_get_shape(port.port, &shape), Reason::not_compiled, "tell the static shape of a port");
    const auto owner = owned(&shape, f.shape_free);
    if (shape.rank > 0) {
      found[i].dims.assign(shape.dims, shape.dims + shape.rank);
    }
  }
  return found;
}

Owned<ov_tensor> make_tensor(const ElementType& type, const std::vector<size_t>& dims, void* memory) {
  const Functions& f = library().f;
  std::vector<int64_t> signed_dims(dims.begin(), dims.end());
  const uint32_t number = type_number(type);
  ov_tensor* tensor = nullptr;
  const int status = memory == nullptr ? f.tensor_create(number, as_shape(signed_dims), &tensor)
                                       : f.tensor_create_from_host_ptr(number, as_shape(signed_dims), memory, &tensor);
  check(f, status, Reason::not_executed, "make a tensor");
  return Owned<ov_tensor>(tensor);
}

void* tensor_data(const ov_tensor* tensor) {
  const Functions& f = library().f;
  void* data = nullptr;
  check(f, f.tensor_data(tensor, &data), Reason::not_executed, "show a tensor's memory");
  return data;
}

void set_tensor(ov_infer_request* request, Side side, size_t index, const ov_tensor* tensor) {
  const Functions& f = library().f;
  const auto set =
      side == Side::input ? f.infer_request_set_input_tensor_by_index : f.infer_request_set_output_tensor_by_index;
  check(f, set(request, index, tensor), Reason::not_executed, "use an argument's memory");
}

void infer(ov_infer_request* request) {
  const Functions& f = working_library().f;
  check(f, f.infer_request_infer(request), Reason::not_executed, "execute the model");
}

std::vector<LayerTime> layer_times(const ov_infer_request* request) {
  const Functions& f = library().f;
  ov_profiling_info_list list{};
  check(f, f.infer_request_get_profiling_info(request, &list), Reason::not_executed, "tell the layers' times");
  const auto owner = owned(&list, f.profiling_info_list_free);
  auto text = [](const char* given) { return given == nullptr ? std::string() : std::string(given); };
  std::vector<LayerTime> times;
  for (size_t i = 0; i < list.size; ++i) {
    const ov_profiling_info& info = list.infos[i];
    times.push_back({static_cast<LayerTime::Status>(info.status), text(info.node_name), text(info.node_type),
                     static_cast<uint64_t>(info.real_time)});
  }
  return times;
}

}  // namespace softdriver::openvino
