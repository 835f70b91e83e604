#include "control.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <system_error>

#include "behaviour.hpp"
#include "environment.hpp"
#include "faults.hpp"
#include "record.hpp"

using namespace softdriver;

namespace {

constexpr uint32_t interface_version = 1;
constexpr uint32_t record_calls = 1;
constexpr uint32_t record_executions = 2;

// Empty when no record is asked for.
std::string record_path() noexcept { return platform::environment(identity.record_variable); }

void write_record(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) {
    throw std::system_error(errno, std::generic_category(), path);
  }
  const std::string text = record_json();
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !written) {
    throw std::system_error(errno, std::generic_category(), path);
  }
}

// With a path in the environment, records from load to exit and writes the record there.
class RecordFile {
 public:
  RecordFile() noexcept {
    if (!record_path().empty()) {
      start_recording();
    }
  }

  ~RecordFile() {
    const std::string path = record_path();
    if (path.empty() || getpid() != owner_) {  // a forked child must not write over its parent's
      return;
    }
    try {
      write_record(path);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "l0py software driver: no record written: %s\n", error.what());
    }
  }

 private:
  const pid_t owner_ = getpid();
};

// The one static with a destructor: it is what runs at exit.
RecordFile record_file;

}  // namespace

uint32_t l0sd_version(void) { return interface_version; }

ze_result_t l0sd_inject(const char* function, uint64_t after, ze_result_t result, uint64_t count) try {
  if (function == nullptr) {
    return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  }
  return inject_fault(function, after, result, count) ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
} catch (const std::exception&) {
  return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

void l0sd_clear_faults(void) { clear_faults(); }

ze_result_t l0sd_record_start(uint32_t what) {
  if ((what & ~(record_calls | record_executions)) != 0) {
    return ZE_RESULT_ERROR_INVALID_ENUMERATION;
  }
  if ((what & record_calls) != 0) {
    start_recording();
  }
  return ZE_RESULT_SUCCESS;
}

void l0sd_record_stop(void) { stop_recording(); }

void l0sd_record_reset(void) { reset_record(); }

size_t l0sd_record_json(char* buffer, size_t size) try {
  const std::string text = record_json();
  if (buffer != nullptr && size != 0) {
    const size_t length = text.size() < size ? text.size() : size - 1;
    std::memcpy(buffer, text.data(), length);
    buffer[length] = '\0';
  }
  return text.size() + 1;
} catch (const std::exception&) {
  return 0;
}

ze_result_t l0sd_imitate(const char* release) {
  return imitate(release) ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

ze_result_t l0sd_memory_limit(uint64_t bytes) {
  set_memory_limit(bytes);
  return ZE_RESULT_SUCCESS;
}
