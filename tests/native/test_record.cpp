// The record: calls, live objects, memory, and how it is written.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "check.hpp"

using check::npu;
using check::number_of;
using check::record;

namespace {

bool has(const std::string& json, const std::string& part) { return json.find(part) != std::string::npos; }

}  // namespace

TEST(calls_only_when_asked_for) {
  npu();
  ze_api_version_t version{};
  l0sd.record_reset();
  OK(l0.ze_driver.pfnGetApiVersion(npu().driver, &version));
  CHECK(!has(record(), "zeDriverGetApiVersion"));
  OK(l0sd.record_start(1));
  OK(l0.ze_driver.pfnGetApiVersion(npu().driver, &version));
  CHECK_RESULT(l0.ze_driver.pfnGetApiVersion(npu().driver, nullptr), ERROR_INVALID_NULL_POINTER);
  l0sd.record_stop();
  OK(l0.ze_driver.pfnGetApiVersion(npu().driver, &version));
  const std::string json = record();
  CHECK(has(json, "\"zeDriverGetApiVersion\":{\"count\":2,\"failures\":1}"));
  const auto driver = std::to_string(reinterpret_cast<uintptr_t>(npu().driver));
  const auto result = std::to_string(static_cast<uint32_t>(ZE_RESULT_ERROR_INVALID_NULL_POINTER));
  CHECK(
      has(json, "{\"function\":\"zeDriverGetApiVersion\",\"result\":" + result + ",\"arguments\":[" + driver + ",0]}"));
  l0sd.record_reset();
  CHECK(!has(record(), "zeDriverGetApiVersion"));
  CHECK_RESULT(l0sd.record_start(4), ERROR_INVALID_ENUMERATION);
}

TEST(the_last_calls_alone_are_kept) {
  OK(l0sd.record_start(1));
  l0sd.record_reset();
  ze_api_version_t version{};
  for (int i = 0; i < 3000; ++i) {
    OK(l0.ze_driver.pfnGetApiVersion(npu().driver, &version));
  }
  l0sd.record_stop();
  const std::string json = record();
  CHECK(number_of(json, "count") == 3000);
  size_t entries = 0;
  for (size_t at = json.find("\"function\""); at != std::string::npos; at = json.find("\"function\"", at + 1)) {
    ++entries;
  }
  CHECK(entries == 1024);
  l0sd.record_reset();
}

TEST(live_objects_and_memory) {
  const auto context = check::make_context();
  check::make_memory(context, 5000);
  const std::string json = record();
  CHECK(number_of(json, "context") == 1 && number_of(json, "driver") == 1 && number_of(json, "device") == 1);
  CHECK(number_of(json, "now") == 8192 && number_of(json, "blocks") == 1);
  check::destroy(context);
  const std::string after = record();
  CHECK(number_of(after, "context") == 0 && number_of(after, "now") == 0 && number_of(after, "peak") >= 8192);
  l0sd.record_reset();
  CHECK(number_of(record(), "peak") == 0);
}

TEST(json_is_cut_at_the_buffer) {
  const size_t needed = l0sd.record_json(nullptr, 0);
  char small[8];
  std::memset(small, 'x', sizeof small);
  CHECK(l0sd.record_json(small, 4) == needed);
  CHECK(small[0] == '{' && small[3] == '\0' && small[4] == 'x');
  CHECK(l0sd.record_json(small, 0) == needed && small[0] == '{');
  CHECK(record().back() == '}');
  CHECK(l0sd.version() == 1);
}

// The variable is read when the library is loaded: in a program of its own.
TEST(a_record_at_exit) {
  char path[] = "/tmp/l0py_record_XXXXXX";
  const int fd = mkstemp(path);
  CHECK(fd >= 0);
  close(fd);
  setenv("L0PY_SOFTDRIVER_RECORD", path, 1);
  check::in_child([] {
    execl("/proc/self/exe", "test_record", "live_objects_and_memory", static_cast<char*>(nullptr));
    CHECK(!"the program does not start");
  });
  unsetenv("L0PY_SOFTDRIVER_RECORD");
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  CHECK(text.str().front() == '{' && text.str().back() == '}' && has(text.str(), "\"objects\""));
  std::remove(path);
}
