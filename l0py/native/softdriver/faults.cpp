#include "faults.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

#include "fork.hpp"

namespace softdriver {
namespace {

struct Fault {
  Function function;
  uint64_t spared;     // calls that still pass before it strikes
  uint64_t remaining;  // calls that it fails; `for_ever` counts nothing down
  bool for_ever;
  ze_result_t result;
};

// Under Lock::faults. Deliberately never destroyed: other libraries call the driver while the process exits.
std::vector<Fault>& the_faults() {
  static auto& instance = *new std::vector<Fault>;
  return instance;
}

}  // namespace

std::atomic<bool> faults_armed{false};

bool take_armed_fault(Function function, ze_result_t* result) noexcept {
  std::lock_guard lock(process_lock(Lock::faults));
  std::vector<Fault>& faults = the_faults();
  bool struck = false;
  // Every fault of the function counts this call, so that each keeps the numbering of its own start.
  for (Fault& fault : faults) {
    if (fault.function != function) {
      continue;
    }
    if (fault.spared > 0) {
      --fault.spared;
    } else if (fault.for_ever || fault.remaining > 0) {
      fault.remaining -= fault.for_ever ? 0 : 1;
      *result = fault.result;
      struck = true;
    }
  }
  auto spent = [](const Fault& fault) { return !fault.for_ever && fault.remaining == 0; };
  faults.erase(std::remove_if(faults.begin(), faults.end(), spent), faults.end());
  faults_armed.store(!faults.empty(), std::memory_order_relaxed);
  return struck;
}

bool inject_fault(const char* function, uint64_t after, ze_result_t result, uint64_t count) {
  auto same = [function](const char* name) { return std::strcmp(name, function) == 0; };
  auto found = std::find_if(std::begin(function_names), std::end(function_names), same);
  if (found == std::end(function_names)) {
    return false;
  }
  auto number = static_cast<Function>(found - std::begin(function_names));
  std::lock_guard lock(process_lock(Lock::faults));
  std::vector<Fault>& faults = the_faults();
  faults.push_back({number, after, count, count == 0, result});
  faults_armed.store(true, std::memory_order_relaxed);
  return true;
}

void clear_faults() noexcept {
  std::lock_guard lock(process_lock(Lock::faults));
  std::vector<Fault>& faults = the_faults();
  faults.clear();
  faults_armed.store(false, std::memory_order_relaxed);
}

}  // namespace softdriver
