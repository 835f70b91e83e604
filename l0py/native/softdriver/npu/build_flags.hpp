// The text that the plugin passes beside a model: precisions and layouts of its ports, options of the compiler.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "element_type.hpp"

namespace softdriver {

struct BuildFlags {
  std::map<size_t, const ElementType*> input_precisions, output_precisions;  // by port
  std::map<std::string, std::string> options;

  bool option_is(const std::string& key, std::string_view value) const;
};

// Reads `--inputs_precisions="0:FP32 ..." --inputs_layouts="0:NCHW ..." --outputs_... --config KEY="VALUE" ...`,
// each part at most once, all of them optional. Options are kept whether they are known or not. Layouts are checked
// for form only: ports keep the order of their dimensions. Throws ModelError for anything else.
BuildFlags parse_build_flags(std::string_view text);

}  // namespace softdriver
