// Mutable command lists: arguments of graph executions, replaced after the list was closed.
#include "command_list.hpp"
#include "softdriver_functions.hpp"

namespace softdriver {
namespace {

void require_mutable(const CommandList& list) {
  if (!list.is_mutable) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "the command list was not created as a mutable one");
  }
}

// Argument updates, each perhaps followed by its strides.
std::vector<CommandList::ArgumentUpdate> read_updates(const void* chain) {
  constexpr int longest = 65536;  // far more than a graph has arguments: this chain bites its own tail
  std::vector<CommandList::ArgumentUpdate> updates;
  int links = 0;
  for (auto* link = static_cast<const ze_base_desc_t*>(chain); link != nullptr;
       link = static_cast<const ze_base_desc_t*>(link->pNext)) {
    if (++links > longest) {
      throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "desc.pNext does not end");
    }
    switch (static_cast<uint32_t>(link->stype)) {
      case ZE_STRUCTURE_TYPE_MUTABLE_GRAPH_ARGUMENT_EXP_DESC:
      case ZE_STRUCTURE_TYPE_MUTABLE_GRAPH_ARGUMENT_EXP_DESC_DEPRECATED: {
        auto* argument = reinterpret_cast<const ze_mutable_graph_argument_exp_desc_t*>(link);
        updates.push_back({argument->commandId, argument->argIndex, argument->pArgValue, nullptr});
        break;
      }
      case ZE_STRUCTURE_TYPE_GRAPH_ARGUMENT_STRIDES:
        if (updates.empty()) {
          throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "strides that follow no argument");
        }
        updates.back().strides = reinterpret_cast<const ze_graph_argument_value_strides_t*>(link)->userStrides;
        break;
      default:
        throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT,
                      "structure type " + std::to_string(link->stype) + " cannot update a command");
    }
  }
  if (updates.empty()) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "desc.pNext holds no updates");
  }
  return updates;
}

}  // namespace

ze_result_t api::zeCommandListGetNextCommandIdExp(ze_command_list_handle_t list,
                                                  const ze_mutable_command_id_exp_desc_t* desc, uint64_t* id) {
  const auto found = find<CommandList>(list);
  require(desc, "desc");
  require(id, "pCommandId");
  require_mutable(*found);
  if (desc->flags != ZE_MUTABLE_COMMAND_EXP_FLAG_GRAPH_ARGUMENTS &&
      desc->flags != ZE_MUTABLE_COMMAND_EXP_FLAG_GRAPH_ARGUMENT_DEPRECATED) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "only graph arguments can be updated");
  }
  *id = found->next_id();
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandListUpdateMutableCommandsExp(ze_command_list_handle_t list,
                                                       const ze_mutable_commands_exp_desc_t* desc) {
  const auto found = find<CommandList>(list);
  require(desc, "desc");
  require_mutable(*found);
  if (desc->flags != 0) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "desc.flags must be 0");
  }
  found->update(read_updates(desc->pNext));
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeCommandListIsMutableExp(ze_command_list_handle_t list, ze_bool_t* is_mutable) {
  const auto found = find<CommandList>(list);
  require(is_mutable, "pIsMutable") = found->is_mutable;
  return ZE_RESULT_SUCCESS;
}

}  // namespace softdriver
