#include "build_flags.hpp"

#include <algorithm>
#include <charconv>
#include <set>

#include "model_error.hpp"

namespace softdriver {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw ModelError(ModelError::Reason::bad_input, "the build flags are malformed: " + what);
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  // Skips the spaces before it; true at the end of the text.
  bool at_end() noexcept {
    while (position_ < text_.size() && text_[position_] == ' ') {
      ++position_;
    }
    return position_ == text_.size();
  }

  bool at_dashes() const noexcept { return text_.compare(position_, 2, "--") == 0; }

  std::string_view word() {
    size_t stop = text_.find_first_of(" =", position_);
    std::string_view found = text_.substr(position_, stop - position_);
    position_ += found.size();
    if (found.empty()) {
      fail("a name is missing at offset " + std::to_string(position_));
    }
    return found;
  }

  // The `="..."` after a word.
  std::string_view value(std::string_view key) {
    if (text_.compare(position_, 2, "=\"") != 0) {
      fail("'" + std::string(key) + "' has no value in quotes");
    }
    position_ += 2;
    size_t stop = text_.find('"', position_);
    if (stop == std::string_view::npos) {
      fail("the value of '" + std::string(key) + "' is not closed");
    }
    std::string_view found = text_.substr(position_, stop - position_);
    position_ = stop + 1;
    if (position_ < text_.size() && text_[position_] != ' ') {
      fail("something follows the value of '" + std::string(key) + "'");
    }
    return found;
  }

 private:
  std::string_view text_;
  size_t position_ = 0;
};

// "0:A 1:B" as a map from port to text.
std::map<size_t, std::string_view> parse_ports(std::string_view key, std::string_view list) {
  std::map<size_t, std::string_view> ports;
  while (!list.empty()) {
    std::string_view entry = list.substr(0, list.find(' '));
    list.remove_prefix(std::min(list.size(), entry.size() + 1));
    size_t port = 0;
    auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), port);
    const size_t digits = static_cast<size_t>(end - entry.data());
    if (error != std::errc() || digits + 1 >= entry.size() || entry[digits] != ':') {
      fail("'" + std::string(entry) + "' in " + std::string(key) + " is not of the form <port number>:<value>");
    }
    if (!ports.emplace(port, entry.substr(digits + 1)).second) {
      fail("port " + std::to_string(port) + " is given twice in " + std::string(key));
    }
  }
  return ports;
}

std::map<size_t, const ElementType*> parse_precisions(std::string_view key, std::string_view list) {
  std::map<size_t, const ElementType*> precisions;
  for (const auto& [port, precision] : parse_ports(key, list)) {
    const ElementType* type = find_type_by_precision(precision);
    if (type == nullptr) {
      fail("precision '" + std::string(precision) + "' of port " + std::to_string(port) + " is not known");
    }
    precisions.emplace(port, type);
  }
  return precisions;
}

}  // namespace

bool BuildFlags::option_is(const std::string& key, std::string_view value) const {
  auto found = options.find(key);
  return found != options.end() && found->second == value;
}

BuildFlags parse_build_flags(std::string_view text) {
  BuildFlags flags;
  Reader reader(text);
  std::set<std::string_view> seen;
  while (!reader.at_end()) {
    std::string_view key = reader.word();
    if (!seen.insert(key).second) {
      fail("'" + std::string(key) + "' is given twice");
    }
    if (key == "--inputs_precisions") {
      flags.input_precisions = parse_precisions(key, reader.value(key));
    } else if (key == "--outputs_precisions") {
      flags.output_precisions = parse_precisions(key, reader.value(key));
    } else if (key == "--inputs_layouts" || key == "--outputs_layouts") {
      parse_ports(key, reader.value(key));
    } else if (key == "--config") {
      while (!reader.at_end() && !reader.at_dashes()) {
        std::string option(reader.word());
        flags.options[option] = reader.value(option);
      }
    } else {
      fail("'" + std::string(key) + "' is not known");
    }
  }
  return flags;
}

}  // namespace softdriver
