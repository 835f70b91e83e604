// Commands of the tests' own in the driver's lists: for what no command of the API does on demand, such as failing.
// Only for tests that the driver is linked into.
#pragma once

#include <functional>
#include <utility>

#include "check.hpp"
#include "command_list.hpp"

namespace check {

class OwnCommand final : public softdriver::Command {
 public:
  explicit OwnCommand(std::function<void()> body) : body_(std::move(body)) {}
  void run() override { body_(); }

 private:
  const std::function<void()> body_;
};

inline void append(ze_command_list_handle_t list, std::function<void()> body, ze_event_handle_t signal = nullptr) {
  softdriver::find<softdriver::CommandList>(list)->append(std::make_shared<OwnCommand>(std::move(body)), signal, 0,
                                                          nullptr);
}

inline ze_command_list_handle_t closed_list(ze_context_handle_t context, std::function<void()> body) {
  const ze_command_list_handle_t list = make_list(context);
  append(list, std::move(body));
  OK(l0.ze_command_list.pfnClose(list));
  return list;
}

}  // namespace check
