// Why a model could not be read, compiled or run, in words for the user.
#pragma once

#include <stdexcept>
#include <string>

namespace softdriver {

class ModelError : public std::runtime_error {
 public:
  enum class Reason {
    no_openvino,   // the OpenVINO library, or its C part, is not there
    bad_input,     // the bytes or the build flags are not what they should be
    bad_binary,    // a native binary that this driver did not make, or a damaged one
    not_compiled,  // OpenVINO, or a limit of this driver, refuses the model
    not_executed,  // compiled, but the execution failed
  };
  ModelError(Reason reason, const std::string& text) : std::runtime_error(text), reason(reason) {}
  const Reason reason;
};

}  // namespace softdriver
