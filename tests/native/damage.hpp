// Deterministic damage to inputs: the same in every run and on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "check.hpp"
#include "model_error.hpp"

namespace check {

class Damage {
 public:
  explicit Damage(uint64_t seed) : state_(seed * 2 + 1) {}

  size_t below(size_t limit) {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<size_t>(state_ >> 33) % limit;
  }

  // One to four bytes changed, left out, doubled or put elsewhere.
  std::string apply(std::string text, const std::string& alphabet) {
    for (size_t changes = 1 + below(4); changes > 0 && !text.empty(); --changes) {
      const size_t at = below(text.size());
      switch (below(5)) {
        case 0: text[at] = alphabet[below(alphabet.size())]; break;
        case 1: text.erase(at, 1 + below(8)); break;
        case 2: text.insert(at, text.substr(below(text.size()), below(40))); break;
        case 3: text.resize(at); break;
        default: text[at] = static_cast<char>(below(256)); break;
      }
    }
    return text;
  }

 private:
  uint64_t state_;
};

// True when `body` refuses its input with a reason in words, false when it takes it. Anything else ends the test.
template <class Body>
bool refuses(Body body) {
  try {
    body();
    return false;
  } catch (const softdriver::ModelError& error) {
    CHECK(error.what()[0] != '\0');
    return true;
  }
}

}  // namespace check
