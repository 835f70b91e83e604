// Graphs in command lists: initialisation and execution.
#include "command_list.hpp"
#include "graph.hpp"
#include "profiling.hpp"
#include "record.hpp"
#include "softdriver_functions.hpp"

namespace softdriver {
namespace {

class Initialize final : public Command {
 public:
  explicit Initialize(std::shared_ptr<Model> model) : model_(std::move(model)) {}
  void run() override {
    try {
      model_->warm_up();
    } catch (const ModelError& error) {
      throw as_failure(error);
    }
  }

 private:
  const std::shared_ptr<Model> model_;
};

class Execute final : public Command {
 public:
  Execute(const Graph& graph, std::shared_ptr<Context> context, std::shared_ptr<ProfilingQuery> query)
      : graph_(graph.number), model_(graph.model), context_(std::move(context)), query_(std::move(query)) {
    pointers_.resize(model_->arguments().size());
    blocks_.resize(pointers_.size());
    memory_.resize(pointers_.size());
    const std::vector<const void*> values = graph.argument_values();
    for (uint32_t i = 0; i < values.size(); ++i) {
      if (values[i] == nullptr) {
        throw Failure(ZE_RESULT_ERROR_UNINITIALIZED, describe(i) + " has no value yet");
      }
      set_argument(i, values[i], nullptr);
    }
  }

  void run() override {
    record_execution(graph_, pointers_, memory_);
    try {
      if (query_ != nullptr) {
        query_->start();
        std::vector<openvino::LayerTime> times;
        model_->execute(pointers_, &times);
        query_->finish(std::move(times));
      } else {
        model_->execute(pointers_);
      }
    } catch (const ModelError& error) {
      throw as_failure(error);
    }
  }

  std::shared_ptr<Command> clone() const override { return std::make_shared<Execute>(*this); }

  void set_argument(uint32_t index, const void* pointer, const uint32_t* strides) override {
    if (index >= pointers_.size()) {
      throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "the graph has no argument " + std::to_string(index));
    }
    require(static_cast<const std::byte*>(pointer), "pArgValue");
    if (strides != nullptr) {
      throw Failure(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "arguments with strides are not supported");
    }
    const Argument& argument = model_->arguments()[index];
    auto block = context_->allocations.find(pointer);
    if (block == nullptr) {
      throw Failure(ZE_RESULT_ERROR_UNINITIALIZED,
                    describe(index) + " lies in memory that was not allocated or imported in the list's context");
    }
    if (!block->holds(pointer, argument.size())) {
      throw Failure(ZE_RESULT_ERROR_UNINITIALIZED, describe(index) + " needs " + std::to_string(argument.size()) +
                                                       " bytes, which end past the end of its allocation");
    }
    if (!argument.is_input && block->read_only) {
      throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT,
                    describe(index) + " is an output, but its memory was imported for reading only");
    }
    pointers_[index] = pointer;
    memory_[index] = block->id;
    blocks_[index] = std::move(block);
  }

 private:
  std::string describe(uint32_t index) const {
    const Argument& argument = model_->arguments()[index];
    return std::string(argument.is_input ? "input " : "output ") + std::to_string(index) + " ('" + argument.name + "')";
  }

  const uintptr_t graph_;
  const std::shared_ptr<Model> model_;
  const std::shared_ptr<Context> context_;
  const std::shared_ptr<ProfilingQuery> query_;
  std::vector<const void*> pointers_;
  std::vector<std::shared_ptr<Allocation>> blocks_;  // so that the memory stays as long as the command
  std::vector<uint64_t> memory_;                     // the blocks' ids
};

}  // namespace

ze_result_t api::graph_pfnAppendGraphInitialize(ze_command_list_handle_t hCommandList, ze_graph_handle_t hGraph,
                                                ze_event_handle_t hSignalEvent, uint32_t numWaitEvents,
                                                ze_event_handle_t* phWaitEvents) {
  const auto list = find<CommandList>(hCommandList);
  const auto graph = find<Graph>(hGraph);
  graph->home.require();
  list->append(std::make_shared<Initialize>(graph->model), hSignalEvent, numWaitEvents, phWaitEvents);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::graph_pfnAppendGraphExecute(ze_command_list_handle_t hCommandList, ze_graph_handle_t hGraph,
                                             ze_graph_profiling_query_handle_t hProfilingQuery,
                                             ze_event_handle_t hSignalEvent, uint32_t numWaitEvents,
                                             ze_event_handle_t* phWaitEvents) {
  const auto list = find<CommandList>(hCommandList);
  const auto graph = find<Graph>(hGraph);
  auto query = hProfilingQuery == nullptr ? nullptr : find<ProfilingQuery>(hProfilingQuery);
  list->append(std::make_shared<Execute>(*graph, list->context, std::move(query)), hSignalEvent, numWaitEvents,
               phWaitEvents);
  return ZE_RESULT_SUCCESS;
}

}  // namespace softdriver
