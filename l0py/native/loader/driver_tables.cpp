#include "driver_tables.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

extern "C" ze_result_t ZE_APICALL zeGetGlobalProcAddrTable(ze_api_version_t version, ze_global_dditable_t* table);

Tables tables;

namespace {

constexpr const char* known_drivers[] = {"libze_intel_npu.so.1", "libze_intel_vpu.so.1", "libze_intel_gpu.so.1"};

enum class State { no_driver, ready, gone };
std::atomic<State> state{State::no_driver};

// Libraries are never closed: drivers leave threads and exit handlers behind.
void* open_library(const char* name) noexcept { return dlopen(name, RTLD_LAZY | RTLD_LOCAL); }
void* find_symbol(void* library, const char* name) noexcept { return dlsym(library, name); }

class Candidate {
 public:
  explicit Candidate(std::string_view name) : name(name) {}

  ze_result_t try_init(uint32_t wanted, const DriverInit& init) {
    const bool refused_before = (wanted & ~refused) == 0;
    if (!refused_before) {
      result = open();
      if (result == ZE_RESULT_SUCCESS) result = init(driver);
      if (result != ZE_RESULT_SUCCESS) refused |= wanted;
    }
    return result;
  }

  const Tables& functions() const noexcept { return driver; }

 private:
  ze_result_t open() {
    if (!opened) {
      opened = true;
      open_result = read_tables();
    }
    return open_result;
  }

  ze_result_t read_tables() {
    void* library = open_library(name.c_str());
    if (library == nullptr) return ZE_RESULT_ERROR_UNINITIALIZED;
    void* global = find_symbol(library, "zeGetGlobalProcAddrTable");
    // A library linked with this loader, or the loader itself, is no driver.
    if (global == nullptr || global == reinterpret_cast<void*>(&zeGetGlobalProcAddrTable)) {
      return ZE_RESULT_ERROR_UNINITIALIZED;
    }
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
    if (read == ZE_RESULT_SUCCESS) std::memcpy(reinterpret_cast<char*>(&driver) + getter.offset, table, getter.size);
    return read;
  }

  std::string name;
  bool opened = false;
  ze_result_t open_result = ZE_RESULT_ERROR_UNINITIALIZED;
  ze_result_t result = ZE_RESULT_ERROR_UNINITIALIZED;
  uint32_t refused = 0;
  Tables driver{};
};

std::vector<Candidate> find_candidates() {
  std::vector<Candidate> found;
  const char* alternatives = std::getenv("ZE_ENABLE_ALT_DRIVERS");
  if (alternatives == nullptr || *alternatives == '\0') {
    for (const char* name : known_drivers) found.emplace_back(name);
    return found;
  }
  std::string_view rest = alternatives;
  while (!rest.empty()) {
    const size_t end = rest.find(',');
    const std::string_view name = rest.substr(0, end);
    if (!name.empty()) found.emplace_back(name);
    rest = end == rest.npos ? std::string_view() : rest.substr(end + 1);
  }
  return found;
}

std::mutex mutex;
const Candidate* chosen = nullptr;

void store(const Tables& source) noexcept {
  static_assert(std::is_trivially_copyable_v<Tables> && sizeof(Tables) % sizeof(void*) == 0);
  auto* from = reinterpret_cast<void* const*>(&source);
  auto* to = reinterpret_cast<void**>(&tables);
  for (size_t i = 0; i < sizeof(Tables) / sizeof(void*); ++i) __atomic_store_n(to + i, from[i], __ATOMIC_RELEASE);
}

ze_result_t choose(uint32_t wanted, const DriverInit& init) {
  // Never destroyed: other libraries call the loader while the process exits.
  static auto& candidates = *new std::vector<Candidate>(find_candidates());
  ze_result_t why = ZE_RESULT_ERROR_UNINITIALIZED;
  for (Candidate& candidate : candidates) {
    const ze_result_t result = candidate.try_init(wanted, init);
    if (result == ZE_RESULT_SUCCESS) {
      chosen = &candidate;
      store(candidate.functions());
      state = State::ready;
      return ZE_RESULT_SUCCESS;
    }
    // "Uninitialized" says least: it is what a driver that is not installed comes to as well.
    if (why == ZE_RESULT_ERROR_UNINITIALIZED) why = result;
  }
  return why;
}

}  // namespace

ze_result_t missing() noexcept {
  return state == State::ready ? ZE_RESULT_ERROR_UNSUPPORTED_FEATURE : ZE_RESULT_ERROR_UNINITIALIZED;
}

ze_result_t initialize(uint32_t wanted, const DriverInit& init) noexcept {
  try {
    if (state == State::gone) return ZE_RESULT_ERROR_UNINITIALIZED;
    std::unique_lock lock(mutex);
    if (chosen == nullptr) return choose(wanted, init);
    lock.unlock();
    return init(chosen->functions());
  } catch (const std::bad_alloc&) {
    return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  } catch (...) {
    return ZE_RESULT_ERROR_UNKNOWN;
  }
}

void forget_driver() noexcept {
  state = State::gone;
  store(Tables{});
}

bool driver_is_gone() noexcept { return state == State::gone; }
