// Graphs, and the pools of their profiling, with a model that repeats its input: it needs no OpenVINO.
#include <cstdlib>
#include <cstring>
#include <new>

#include "check.hpp"

using check::ever;
using check::npu;

namespace {

// How many more allocations of this thread succeed before one fails; negative: all do.
thread_local long spared = -1;

const auto& graphs() { return check::extension<ze_graph_dditable_ext_t>(ZE_GRAPH_EXT_NAME); }

const auto& profiling() { return check::extension<ze_graph_profiling_dditable_ext_t>(ZE_PROFILING_DATA_EXT_NAME); }

// The model as the plugin sends it: an input `x` of these dimensions, which is the output too.
std::string model(const std::string& dims) {
  const std::string port = "<port id=\"0\" precision=\"U8\">" + dims + "</port>";
  const std::string xml =
      "<?xml version=\"1.0\"?><net name=\"n\" version=\"11\"><layers>"
      "<layer id=\"0\" name=\"x\" type=\"Parameter\" version=\"opset1\"><data shape=\"\" "
      "element_type=\"u8\"/><output>" +
      port + "</output></layer><layer id=\"1\" name=\"y\" type=\"Result\" version=\"opset1\"><input>" + port +
      "</input></layer></layers><edges><edge from-layer=\"0\" from-port=\"0\" to-layer=\"1\" "
      "to-port=\"0\"/></edges></net>";
  std::string packed(4, '\1');
  const uint32_t parts = 2;
  packed.append(reinterpret_cast<const char*>(&parts), sizeof parts);
  for (const std::string& part : {xml, std::string()}) {
    const uint64_t size = part.size();
    packed.append(reinterpret_cast<const char*>(&size), sizeof size);
    packed += part;
  }
  return packed;
}

ze_graph_desc_2_t graph_desc(const std::string& input, uint32_t flags = 0) {
  return {ZE_STRUCTURE_TYPE_GRAPH_DESC_2,
          nullptr,
          ZE_GRAPH_FORMAT_NGRAPH_LITE,
          input.size(),
          reinterpret_cast<const uint8_t*>(input.data()),
          "",
          flags};
}

ze_graph_handle_t make_graph(ze_context_handle_t context, uint32_t flags = 0) {
  const std::string input = model("<dim>64</dim>");
  const ze_graph_desc_2_t desc = graph_desc(input, flags);
  ze_graph_handle_t made = nullptr;
  OK(graphs().pfnCreate2(context, npu().device, &desc, &made));
  return made;
}

std::string text_of(ze_graph_build_log_handle_t log) {
  uint32_t size = 0;
  OK(graphs().pfnBuildLogGetString2(log, &size, nullptr));
  std::string text(size, '\0');
  OK(graphs().pfnBuildLogGetString2(log, &size, text.data()));
  return text.c_str();
}

std::string text_of_the_last() {
  uint32_t size = 0;
  OK(graphs().pfnBuildLogGetString(nullptr, &size, nullptr));
  std::string text(size, '\0');
  OK(graphs().pfnBuildLogGetString(nullptr, &size, text.data()));
  return text.c_str();
}

}  // namespace

void* operator new(size_t size) {
  if (spared >= 0 && spared-- == 0) {
    throw std::bad_alloc();
  }
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

TEST(executed) {
  const auto context = check::make_context();
  const auto queue = check::make_queue(context);
  const auto list = check::make_list(context);
  const auto graph = make_graph(context);
  char* in = check::make_memory(context, 64);
  char* out = check::make_memory(context, 64);
  std::memset(in, 5, 64);
  OK(graphs().pfnSetArgumentValue(graph, 0, in));
  OK(graphs().pfnSetArgumentValue(graph, 1, out));
  OK(graphs().pfnAppendGraphExecute(list, graph, nullptr, nullptr, 0, nullptr));
  OK(l0.ze_command_list.pfnClose(list));
  OK(check::execute(queue, list));
  OK(l0.ze_command_queue.pfnSynchronize(queue, ever));
  CHECK(std::memcmp(in, out, 64) == 0);
  OK(graphs().pfnDestroy(graph));
  check::destroy(list, queue, context);
  l0sd.record_reset();
}

TEST(the_reason_in_the_build_log) {
  const auto context = check::make_context();
  const std::string input = model("<dim>4294967296</dim>");
  const ze_graph_desc_2_t desc = graph_desc(input);
  ze_graph_handle_t graph = nullptr;
  ze_graph_build_log_handle_t log = nullptr;
  CHECK_RESULT(graphs().pfnCreate3(context, npu().device, &desc, &graph, &log), ERROR_MODULE_BUILD_FAILURE);
  const std::string reason = "a dimension of a graph's argument has 32 bits, but 'x' has one of 4294967296";
  CHECK(text_of(log) == reason && text_of_the_last() == reason);
  const char* error = nullptr;
  OK(l0.ze_driver.pfnGetLastErrorDescription(npu().driver, &error));
  CHECK(error == reason);
  OK(graphs().pfnBuildLogDestroy(log));
  OK(graphs().pfnDestroy(make_graph(context)));
  CHECK(text_of_the_last().empty());
  check::destroy(context);
}

TEST(the_largest_dimension) {
  const auto context = check::make_context();
  const std::string input = model("<dim>4294967295</dim>");
  const ze_graph_desc_2_t desc = graph_desc(input);
  ze_graph_handle_t graph = nullptr;
  OK(graphs().pfnCreate2(context, npu().device, &desc, &graph));
  ze_graph_argument_properties_3_t properties{};
  OK(graphs().pfnGetArgumentProperties3(graph, 0, &properties));
  CHECK(properties.dims[0] == UINT32_MAX);
  OK(graphs().pfnDestroy(graph));
  check::destroy(context);
}

// Wherever memory ends, all that was made until then goes.
TEST(every_allocation_that_can_fail) {
  const auto context = check::make_context();
  const std::string input = model("<dim>64</dim>");
  const ze_graph_desc_2_t desc = graph_desc(input);
  long failing = -1;
  ze_result_t result = ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  ze_graph_handle_t graph = nullptr;
  ze_graph_build_log_handle_t log = nullptr;
  while (result != ZE_RESULT_SUCCESS && failing < 10000) {
    spared = ++failing;
    result = graphs().pfnCreate3(context, npu().device, &desc, &graph, &log);
    spared = -1;
    if (result != ZE_RESULT_SUCCESS) {
      CHECK_RESULT(result, ERROR_OUT_OF_HOST_MEMORY);
      CHECK(graph == nullptr && log == nullptr);
    }
  }
  CHECK(failing > 10 && result == ZE_RESULT_SUCCESS);
  CHECK(text_of(log).empty());
  OK(graphs().pfnBuildLogDestroy(log));
  OK(graphs().pfnDestroy(graph));
  check::destroy(context);
}

TEST(places_of_a_profiling_pool) {
  const auto context = check::make_context();
  const auto plain = make_graph(context);
  const auto graph = make_graph(context, ZE_GRAPH_FLAG_ENABLE_PROFILING);
  ze_graph_profiling_pool_handle_t pool = nullptr;
  ze_graph_profiling_query_handle_t query = nullptr;
  ze_graph_profiling_query_handle_t second = nullptr;
  CHECK_RESULT(profiling().pfnProfilingPoolCreate(plain, 2, &pool), ERROR_NOT_AVAILABLE);
  CHECK_RESULT(profiling().pfnProfilingPoolCreate(graph, 0, &pool), ERROR_INVALID_SIZE);
  OK(profiling().pfnProfilingPoolCreate(graph, 2, &pool));
  CHECK_RESULT(profiling().pfnProfilingQueryCreate(pool, 2, &query), ERROR_INVALID_ARGUMENT);
  OK(profiling().pfnProfilingQueryCreate(pool, 1, &query));
  CHECK_RESULT(profiling().pfnProfilingQueryCreate(pool, 1, &second), ERROR_HANDLE_OBJECT_IN_USE);
  CHECK_RESULT(profiling().pfnProfilingPoolDestroy(pool), ERROR_HANDLE_OBJECT_IN_USE);
  OK(profiling().pfnProfilingQueryDestroy(query));
  OK(profiling().pfnProfilingQueryCreate(pool, 1, &query));
  OK(profiling().pfnProfilingQueryDestroy(query));
  OK(profiling().pfnProfilingPoolDestroy(pool));
  OK(graphs().pfnDestroy(plain));
  OK(graphs().pfnDestroy(graph));
  check::destroy(context);
}
