// Arguments replaced after a list was closed: what earlier submissions see, and what later ones do.
#include <vector>

#include "own_commands.hpp"

using check::ever;
using check::execute;

namespace {

auto& mutables = l0.ze_command_list_exp;

using Seen = std::vector<const void*>;

const void* address(uintptr_t number) { return reinterpret_cast<const void*>(number); }

// A command with two arguments that tells what it ran with.
class Tells final : public softdriver::Command {
 public:
  explicit Tells(Seen& seen) : seen_(seen) {}
  std::shared_ptr<Command> clone() const override { return std::make_shared<Tells>(*this); }
  void set_argument(uint32_t index, const void* pointer, const uint32_t* strides) override {
    if (index >= 2) {
      throw softdriver::Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "no such argument");
    }
    arguments_[index] = pointer;
    stride_ = strides != nullptr ? strides[4] : stride_;
  }
  void run() override { seen_.insert(seen_.end(), {arguments_[0], arguments_[1], address(stride_)}); }

 private:
  Seen& seen_;
  const void* arguments_[2] = {};
  uint32_t stride_ = 0;
};

struct Bench {
  ze_context_handle_t context = check::make_context();
  ze_command_queue_handle_t queue = check::make_queue(context);
  ze_command_list_handle_t list = check::make_list(context, true);
  ze_event_pool_handle_t pool = check::make_pool(context, 1);
  ze_event_handle_t gate = check::make_event(pool, 0);
  ze_mutable_command_id_exp_desc_t id{ZE_STRUCTURE_TYPE_MUTABLE_COMMAND_ID_EXP_DESC, nullptr,
                                      ZE_MUTABLE_COMMAND_EXP_FLAG_GRAPH_ARGUMENTS};
  uint64_t command = UINT64_MAX;
  Seen seen;

  // A list of two commands: a wait, and one that tells.
  Bench() {
    OK(l0.ze_command_list.pfnAppendWaitOnEvents(list, 1, &gate));
    OK(mutables.pfnGetNextCommandIdExp(list, &id, &command));
    softdriver::find<softdriver::CommandList>(list)->append(std::make_shared<Tells>(seen), nullptr, 0, nullptr);
  }
  ~Bench() { check::destroy(list, gate, pool, queue, context); }

  ze_result_t update(const void* chain) {
    const ze_mutable_commands_exp_desc_t desc{ZE_STRUCTURE_TYPE_MUTABLE_COMMANDS_EXP_DESC, chain, 0};
    return mutables.pfnUpdateMutableCommandsExp(list, &desc);
  }
  ze_mutable_graph_argument_exp_desc_t argument(uint32_t index, uintptr_t value, const void* next = nullptr) const {
    return {ZE_STRUCTURE_TYPE_MUTABLE_GRAPH_ARGUMENT_EXP_DESC, next, command, index, address(value)};
  }
  void run() {
    OK(l0.ze_event.pfnHostSignal(gate));
    OK(l0.ze_command_queue.pfnSynchronize(queue, ever));
  }
};

}  // namespace

TEST(updates_reach_later_executions_alone) {
  Bench bench;
  OK(l0.ze_command_list.pfnClose(bench.list));
  ze_graph_argument_value_strides_t strides{};
  strides.stype = ZE_STRUCTURE_TYPE_GRAPH_ARGUMENT_STRIDES;
  strides.userStrides[4] = 5;
  const auto second = bench.argument(1, 0x20, &strides);
  auto first = bench.argument(0, 0x10, &second);
  OK(execute(bench.queue, bench.list));
  OK(bench.update(&first));
  OK(l0.ze_command_list.pfnClose(bench.list));  // plugins close again after an update
  OK(execute(bench.queue, bench.list));
  first.pNext = nullptr;
  first.pArgValue = address(0x30);
  OK(bench.update(&first));
  OK(execute(bench.queue, bench.list));
  bench.run();
  const Seen wanted = {nullptr,    nullptr,       nullptr,       address(0x10), address(0x20),
                       address(5), address(0x30), address(0x20), address(5)};
  CHECK(bench.seen == wanted);
}

TEST(updates_of_an_open_list) {
  Bench bench;
  const auto argument = bench.argument(0, 0x10);
  OK(bench.update(&argument));
  OK(l0.ze_command_list.pfnClose(bench.list));
  OK(execute(bench.queue, bench.list));
  bench.run();
  CHECK(bench.seen == Seen({address(0x10), nullptr, nullptr}));
}

TEST(all_updates_or_none) {
  Bench bench;
  OK(l0.ze_command_list.pfnClose(bench.list));
  auto second = bench.argument(2, 0x20);
  const auto first = bench.argument(0, 0x10, &second);
  CHECK_RESULT(bench.update(&first), ERROR_INVALID_ARGUMENT);
  second.argIndex = 1;
  for (uint64_t command : {uint64_t{0}, bench.command + 1, UINT64_MAX}) {
    second.commandId = command;
    CHECK_RESULT(bench.update(&first), ERROR_INVALID_ARGUMENT);
  }
  OK(execute(bench.queue, bench.list));
  bench.run();
  CHECK(bench.seen == Seen({nullptr, nullptr, nullptr}));
}

TEST(chains_that_are_wrong) {
  Bench bench;
  ze_graph_argument_value_strides_t strides{};
  strides.stype = ZE_STRUCTURE_TYPE_GRAPH_ARGUMENT_STRIDES;
  CHECK_RESULT(bench.update(nullptr), ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(bench.update(&strides), ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(bench.update(&bench.id), ERROR_INVALID_ARGUMENT);
  const auto argument = bench.argument(0, 0x10);
  ze_mutable_commands_exp_desc_t desc{ZE_STRUCTURE_TYPE_MUTABLE_COMMANDS_EXP_DESC, &argument, 1};
  CHECK_RESULT(mutables.pfnUpdateMutableCommandsExp(bench.list, &desc), ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(mutables.pfnUpdateMutableCommandsExp(bench.list, nullptr), ERROR_INVALID_NULL_POINTER);
}

// An honest chain is a few links long; one that bites its own tail would be read for ever.
TEST(a_chain_that_bites_its_tail) {
  Bench bench;
  auto argument = bench.argument(0, 0x10);
  argument.pNext = &argument;
  CHECK_RESULT(bench.update(&argument), ERROR_INVALID_ARGUMENT);
}

TEST(ids_that_cannot_be_had) {
  Bench bench;
  auto next = mutables.pfnGetNextCommandIdExp;
  uint64_t id = 0;
  CHECK_RESULT(next(bench.list, nullptr, &id), ERROR_INVALID_NULL_POINTER);
  CHECK_RESULT(next(bench.list, &bench.id, nullptr), ERROR_INVALID_NULL_POINTER);
  bench.id.flags = 1;
  CHECK_RESULT(next(bench.list, &bench.id, &id), ERROR_INVALID_ARGUMENT);
  bench.id.flags = ZE_MUTABLE_COMMAND_EXP_FLAG_GRAPH_ARGUMENT_DEPRECATED;
  OK(next(bench.list, &bench.id, &id));
  CHECK(id == bench.command + 1);
  OK(l0.ze_command_list.pfnClose(bench.list));
  CHECK_RESULT(next(bench.list, &bench.id, &id), ERROR_INVALID_ARGUMENT);
}

TEST(lists_that_are_not_mutable) {
  Bench bench;
  const auto plain = check::make_list(bench.context);
  uint64_t id = 0;
  CHECK_RESULT(mutables.pfnGetNextCommandIdExp(plain, &bench.id, &id), ERROR_INVALID_ARGUMENT);
  const auto argument = bench.argument(0, 0x10);
  const ze_mutable_commands_exp_desc_t desc{ZE_STRUCTURE_TYPE_MUTABLE_COMMANDS_EXP_DESC, &argument, 0};
  CHECK_RESULT(mutables.pfnUpdateMutableCommandsExp(plain, &desc), ERROR_INVALID_ARGUMENT);
  ze_bool_t is_mutable = 9;
  OK(mutables.pfnIsMutableExp(plain, &is_mutable));
  CHECK(is_mutable == 0);
  OK(mutables.pfnIsMutableExp(bench.list, &is_mutable));
  CHECK(is_mutable == 1);
  check::destroy(plain);
}
