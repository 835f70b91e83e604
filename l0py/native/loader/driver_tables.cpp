#include "driver_tables.hpp"

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "environment.hpp"
#include "forever.hpp"
#include "installed_drivers.hpp"
#include "shared_library.hpp"

#ifndef _WIN32
#include <pthread.h>
#endif

extern "C" ze_result_t ZE_APICALL zeGetGlobalProcAddrTable(ze_api_version_t version, ze_global_dditable_t* table);

Tables tables;

namespace {

enum class State { no_driver, ready, gone };
std::atomic<State> state{State::no_driver};

using platform::find_symbol;
using platform::open_library;

// Cuts off what stands before the first separator.
std::string cut(std::string_view& rest, char separator) {
  const size_t end = rest.find(separator);
  std::string part(rest.substr(0, end));
  rest = end == rest.npos ? std::string_view() : rest.substr(end + 1);
  return part;
}

// What several drivers said, as one answer.
class Answer {
 public:
  void add(ze_result_t result) noexcept {
    // "Uninitialized" says least: it is what a driver that is not installed comes to as well.
    const bool telling = result_ == ZE_RESULT_ERROR_UNINITIALIZED;
    if (result_ != ZE_RESULT_SUCCESS && (result == ZE_RESULT_SUCCESS || telling)) result_ = result;
  }
  ze_result_t result() const noexcept { return result_; }

 private:
  ze_result_t result_ = ZE_RESULT_ERROR_UNINITIALIZED;
};

class Candidate {
 public:
  explicit Candidate(std::string names) : names_(std::move(names)) {}

  // Opens the library, once.
  void open() {
    if (!opened_) {
      open_result_ = read_tables();
      opened_ = true;
    }
  }

  // Something in the library, which no two drivers share; null for what is none.
  const void* identity() const noexcept { return identity_; }
  void refuse() noexcept { open_result_ = ZE_RESULT_ERROR_UNINITIALIZED; }

  ze_result_t try_init(uint32_t wanted, const DriverCall& init) {
    if (open_result_ != ZE_RESULT_SUCCESS) return open_result_;
    const bool refused_before = !ready() && (wanted & ~refused_) == 0;
    if (refused_before) return result_;
    result_ = init(driver_);
    if (result_ == ZE_RESULT_SUCCESS) {
      ready_.store(true, std::memory_order_release);
    } else {
      refused_ |= wanted;
    }
    return result_;
  }

  // Has accepted an init.
  bool ready() const noexcept { return ready_.load(std::memory_order_acquire); }
  // May accept one yet.
  bool possible() const noexcept {
    return ready() || (open_result_ == ZE_RESULT_SUCCESS && (refused_ & wanted_any_type) != wanted_any_type);
  }
  const Tables& functions() const noexcept { return driver_; }

 private:
  ze_result_t read_tables() {
    void* library = nullptr;
    for (std::string_view rest = names_; library == nullptr && !rest.empty();) {
      library = open_library(cut(rest, '|').c_str());
    }
    if (library == nullptr) return ZE_RESULT_ERROR_UNINITIALIZED;
    void* global = find_symbol(library, "zeGetGlobalProcAddrTable");
    // A library linked with this loader, or the loader itself, is no driver.
    if (global == nullptr || global == reinterpret_cast<void*>(&zeGetGlobalProcAddrTable)) {
      return ZE_RESULT_ERROR_UNINITIALIZED;
    }
    identity_ = global;
    for (const TableGetter& getter : table_getters) {
      const ze_result_t read = read_one(find_symbol(library, getter.name), getter);
      if (read != ZE_RESULT_SUCCESS && getter.required) return read;
    }
    return ZE_RESULT_SUCCESS;
  }

  ze_result_t read_one(void* symbol, const TableGetter& getter) {
    if (symbol == nullptr) return ZE_RESULT_SUCCESS;
    // Larger than any table: some drivers write past the end of the version that they were given.
    alignas(void*) char table[2048] = {};
    const ze_result_t read = getter.read(symbol, table);
    if (read == ZE_RESULT_SUCCESS) std::memcpy(reinterpret_cast<char*>(&driver_) + getter.offset, table, getter.size);
    return read;
  }

  const std::string names_;
  bool opened_ = false;
  ze_result_t open_result_ = ZE_RESULT_ERROR_UNINITIALIZED;
  ze_result_t result_ = ZE_RESULT_ERROR_UNINITIALIZED;
  uint32_t refused_ = 0;
  std::atomic<bool> ready_{false};
  const void* identity_ = nullptr;
  Tables driver_{};
};

// Candidates never move: drivers are known by the addresses of their tables.
using Candidates = std::vector<std::unique_ptr<Candidate>>;

std::unique_ptr<Candidates> find_candidates() {
  auto found = std::make_unique<Candidates>();
  const std::string alternatives = platform::environment("ZE_ENABLE_ALT_DRIVERS");
  if (alternatives.empty()) {
    for (std::string& names : installed_drivers()) found->push_back(std::make_unique<Candidate>(std::move(names)));
    return found;
  }
  for (std::string_view rest = alternatives; !rest.empty();) {
    std::string name = cut(rest, ',');
    if (!name.empty()) found->push_back(std::make_unique<Candidate>(std::move(name)));
  }
  return found;
}

// Never destroyed: other libraries call the loader while the process exits.
std::atomic<Candidates*> candidates{nullptr};

// One init at a time. A forked child gets another lock when its parent's is held, perhaps by a thread that the child
// lacks; perhaps by the one that forked, so it is kept. What is left half done is done again: every step marks its end
// last.
struct InitLock {
  std::mutex mutex;
  InitLock* inherited = nullptr;
};
Forever<InitLock> first_init_lock;
std::atomic<InitLock*> init_lock{&first_init_lock.value};

#ifndef _WIN32
void begin_child() {
  InitLock* inherited = init_lock.load();
  if (inherited->mutex.try_lock()) {
    inherited->mutex.unlock();
  } else if (auto* fresh = new (std::nothrow) InitLock) {
    fresh->inherited = inherited;
    init_lock.store(fresh);
  }
}

[[maybe_unused]] const int fork_handlers = pthread_atfork(nullptr, nullptr, begin_child);
#endif

Candidates& open_candidates() {
  Candidates* all = candidates.load();
  if (all == nullptr) {
    auto found = find_candidates();
    for (auto& candidate : *found) {
      candidate->open();
      for (auto& other : *found) {
        // The same driver under two names.
        if (other == candidate) break;
        if (candidate->identity() != nullptr && candidate->identity() == other->identity()) candidate->refuse();
      }
    }
    all = found.release();
    candidates.store(all);
  }
  return *all;
}

void store(const Tables& source) noexcept {
  static_assert(std::is_trivially_copyable_v<Tables> && sizeof(Tables) % sizeof(void*) == 0);
  auto* from = reinterpret_cast<void* const*>(&source);
  auto* to = reinterpret_cast<void**>(&tables);
  for (size_t i = 0; i < sizeof(Tables) / sizeof(void*); ++i) __atomic_store_n(to + i, from[i], __ATOMIC_RELEASE);
}

// Decides once, at the first driver that accepts: calls go to it directly when no other will ever answer. If another
// may, each handle must be remembered from the first on.
void direct_calls(const Candidates& all) {
  const Candidate* first = nullptr;
  size_t possible = 0;
  for (const auto& candidate : all) {
    if (first == nullptr && candidate->ready()) first = candidate.get();
    if (candidate->possible()) ++possible;
  }
  if (first == nullptr) return;
  store(possible == 1 ? first->functions() : routes);
  state = State::ready;
}

}  // namespace

ze_result_t missing() noexcept {
  return state == State::ready ? ZE_RESULT_ERROR_UNSUPPORTED_FEATURE : ZE_RESULT_ERROR_UNINITIALIZED;
}

ze_result_t initialize(uint32_t wanted, const DriverCall& init) noexcept {
  try {
    if (state == State::gone) return ZE_RESULT_ERROR_UNINITIALIZED;
    std::lock_guard lock(init_lock.load()->mutex);
    Candidates& all = open_candidates();
    Answer answer;
    for (auto& candidate : all) answer.add(candidate->try_init(wanted, init));
    if (state == State::no_driver) direct_calls(all);
    return answer.result();
  } catch (const std::bad_alloc&) {
    return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  } catch (...) {
    return ZE_RESULT_ERROR_UNKNOWN;
  }
}

ze_result_t ask_each(const DriverCall& call) noexcept {
  const Candidates* all = candidates.load(std::memory_order_acquire);
  Answer answer;
  for (size_t i = 0; all != nullptr && i < all->size(); ++i) {
    if ((*all)[i]->ready()) answer.add(call((*all)[i]->functions()));
  }
  return answer.result();
}

void forget_drivers() noexcept {
  state = State::gone;
  store(Tables{});
}

bool drivers_are_gone() noexcept { return state == State::gone; }
