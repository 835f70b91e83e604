#include "behaviour.hpp"

#include <atomic>
#include <cstring>

#include "environment.hpp"

namespace softdriver {
namespace {

const Behaviour* find_release(const char* release) noexcept {
  for (size_t i = 0; i < identity.release_count; ++i) {
    if (release != nullptr && std::strcmp(identity.releases[i].release, release) == 0) {
      return &identity.releases[i];
    }
  }
  return nullptr;
}

// The first release where the environment names none that there is.
const Behaviour* first_imitated() noexcept {
  const Behaviour* wished = find_release(platform::environment(identity.release_variable).c_str());
  return wished != nullptr ? wished : identity.releases;
}

std::atomic<const Behaviour*>& imitated() noexcept {
  static std::atomic<const Behaviour*> instance{first_imitated()};
  return instance;
}

}  // namespace

const Behaviour& behaviour() noexcept { return *imitated().load(std::memory_order_relaxed); }

bool imitate(const char* release) noexcept {
  const Behaviour* wished = find_release(release);
  if (wished != nullptr) {
    imitated().store(wished, std::memory_order_relaxed);
  }
  return wished != nullptr;
}

}  // namespace softdriver
