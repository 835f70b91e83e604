#include "command_queue.hpp"

namespace softdriver {

// It has none.
void check_queue_extensions(const ze_command_queue_desc_t&) {}

}  // namespace softdriver
