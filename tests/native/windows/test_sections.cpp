// Memory behind NT handles: exported, imported, in one process and in two.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "check.hpp"
#include "windows_api.hpp"

using check::npu;

namespace {

constexpr size_t page = 4096;
constexpr auto opaque = ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_WIN32;

// What the two drivers answer differently.
bool is_gpu() {
  ze_device_properties_t properties{};
  properties.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES;
  OK(l0.ze_device.pfnGetProperties(npu().device, &properties));
  return properties.type == ZE_DEVICE_TYPE_GPU;
}
ze_result_t bad_handle() { return is_gpu() ? ZE_RESULT_ERROR_INVALID_ARGUMENT : ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY; }
ze_result_t bad_type() {
  return is_gpu() ? ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION : ZE_RESULT_ERROR_INVALID_ENUMERATION;
}
#define CHECK_SAME(call, wanted) check::report_result((call), (wanted), #call, __FILE__, __LINE__)

ze_external_memory_import_win32_handle_t import_of(HANDLE handle, ze_external_memory_type_flags_t flags = opaque) {
  return {ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_WIN32, nullptr, flags, handle, nullptr};
}

ze_external_memory_import_win32_handle_t import_of(const wchar_t* name,
                                                   ze_external_memory_type_flags_t flags = opaque) {
  return {ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_WIN32, nullptr, flags, nullptr, name};
}

ze_result_t allocate(ze_context_handle_t context, const void* chained, size_t size, char** out,
                     ze_host_mem_alloc_flags_t flags = 0) {
  const auto desc = check::host_desc(chained, flags);
  void* made = nullptr;
  const ze_result_t result = l0.ze_mem.pfnAllocHost(context, &desc, size, 0, &made);
  *out = static_cast<char*>(made);
  return result;
}

char* make_exportable(ze_context_handle_t context, size_t size) {
  const ze_external_memory_export_desc_t wish{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC, nullptr, opaque};
  char* made = nullptr;
  OK(allocate(context, &wish, size, &made));
  return made;
}

ze_result_t export_of(ze_context_handle_t context, const void* memory, HANDLE* out,
                      ze_external_memory_type_flags_t flags = opaque) {
  ze_external_memory_export_win32_handle_t query{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_WIN32, nullptr, flags, *out};
  ze_memory_allocation_properties_t properties{};
  properties.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES;
  properties.pNext = &query;
  const ze_result_t result = l0.ze_mem.pfnGetAllocProperties(context, memory, &properties, nullptr);
  *out = query.handle;
  return result;
}

// A handle that this process owns, whatever the driver does with what it has exported.
HANDLE own_export(ze_context_handle_t context, const void* memory) {
  HANDLE exported = nullptr;
  HANDLE own = nullptr;
  OK(export_of(context, memory, &exported));
  CHECK(exported != nullptr);
  CHECK(DuplicateHandle(GetCurrentProcess(), exported, GetCurrentProcess(), &own, 0, FALSE, DUPLICATE_SAME_ACCESS));
  if (!is_gpu()) {  // where each query makes a handle that is the caller's
    CHECK(CloseHandle(exported));
  }
  return own;
}

size_t range_size(ze_context_handle_t context, const void* memory) {
  void* base = nullptr;
  size_t size = 0;
  OK(l0.ze_mem.pfnGetAddressRange(context, memory, &base, &size));
  return size;
}

HANDLE make_section(size_t bytes, const wchar_t* name = nullptr, DWORD protection = PAGE_READWRITE) {
  const HANDLE section =
      CreateFileMappingW(INVALID_HANDLE_VALUE, nullptr, protection, 0, static_cast<DWORD>(bytes), name);
  CHECK(section != nullptr);
  return section;
}

void free_memory(ze_context_handle_t context, void* memory) { OK(l0.ze_mem.pfnFree(context, memory)); }

DWORD open_handles() {
  DWORD count = 0;
  CHECK(GetProcessHandleCount(GetCurrentProcess(), &count));
  return count;
}

// This program again, running the test named "the_other_process", which reads from a pipe what it shall do.
class OtherProcess {
 public:
  OtherProcess() {
    SECURITY_ATTRIBUTES inherited{sizeof(SECURITY_ATTRIBUTES), nullptr, TRUE};
    HANDLE end = nullptr;
    CHECK(CreatePipe(&end, &orders_, &inherited, 0));
    CHECK(SetHandleInformation(orders_, HANDLE_FLAG_INHERIT, 0));
    wchar_t program[MAX_PATH];
    GetModuleFileNameW(nullptr, program, MAX_PATH);
    std::wstring line = L"\"" + std::wstring(program) + L"\" the_other_process";
    STARTUPINFOW start{};
    start.cb = sizeof start;
    start.dwFlags = STARTF_USESTDHANDLES;
    start.hStdInput = end;
    start.hStdOutput = GetStdHandle(STD_OUTPUT_HANDLE);
    start.hStdError = GetStdHandle(STD_ERROR_HANDLE);
    SetEnvironmentVariableW(L"L0PY_TEST_ORDERS", L"1");
    CHECK(CreateProcessW(program, line.data(), nullptr, nullptr, TRUE, 0, nullptr, nullptr, &start, &process_));
    SetEnvironmentVariableW(L"L0PY_TEST_ORDERS", nullptr);
    CloseHandle(end);
  }

  ~OtherProcess() {
    CloseHandle(process_.hThread);
    CloseHandle(process_.hProcess);
  }

  // The handle's number over there.
  uintptr_t give(HANDLE handle) const {
    HANDLE there = nullptr;
    CHECK(DuplicateHandle(GetCurrentProcess(), handle, process_.hProcess, &there, 0, FALSE, DUPLICATE_SAME_ACCESS));
    return reinterpret_cast<uintptr_t>(there);
  }

  void order(const std::string& text) {
    DWORD written = 0;
    CHECK(WriteFile(orders_, text.data(), static_cast<DWORD>(text.size()), &written, nullptr));
    CloseHandle(orders_);
  }

  // True when all its checks held.
  bool succeeded() const {
    constexpr DWORD patience = 30'000;
    DWORD code = 1;
    return WaitForSingleObject(process_.hProcess, patience) == WAIT_OBJECT_0 &&
           GetExitCodeProcess(process_.hProcess, &code) && code == 0;
  }

 private:
  HANDLE orders_ = nullptr;
  PROCESS_INFORMATION process_{};
};

constexpr char from_here[] = "written by the exporter";
constexpr char from_there[] = "written by the importer";

}  // namespace

TEST(the_other_process) {
  if (std::getenv("L0PY_TEST_ORDERS") == nullptr) {
    return;
  }
  unsigned long long number = 0;
  wchar_t name[64] = L"";
  CHECK(std::scanf("%llx %63ls", &number, name) >= 1);
  auto* handle = reinterpret_cast<HANDLE>(static_cast<uintptr_t>(number));
  const auto context = check::make_context();
  const auto import = handle != nullptr ? import_of(handle) : import_of(name);
  char* memory = nullptr;
  OK(allocate(context, &import, 3 * page, &memory));
  if (handle != nullptr) {
    CHECK(CloseHandle(handle));  // the import needs it no more
  }
  if (memory != nullptr) {
    CHECK(std::strcmp(memory, from_here) == 0);
    std::strcpy(memory + 2 * page, from_there);
    free_memory(context, memory);
  }
  check::destroy(context);
}

TEST(what_is_offered) {
  ze_device_external_memory_properties_t types{};
  types.stype = ZE_STRUCTURE_TYPE_DEVICE_EXTERNAL_MEMORY_PROPERTIES;
  OK(l0.ze_device.pfnGetExternalMemoryProperties(npu().device, &types));
  CHECK(types.memoryAllocationExportTypes == opaque);
  const uint32_t d3d12 = ZE_EXTERNAL_MEMORY_TYPE_FLAG_D3D12_HEAP | ZE_EXTERNAL_MEMORY_TYPE_FLAG_D3D12_RESOURCE;
  const uint32_t imports = is_gpu() ? opaque | d3d12 : opaque | ZE_EXTERNAL_MEMORY_TYPE_FLAG_STANDARD_ALLOCATION;
  CHECK(types.memoryAllocationImportTypes == imports);
}

TEST(an_export_is_imported_in_another_context) {
  const auto exporter = check::make_context();
  const auto importer = check::make_context();
  char* ours = make_exportable(exporter, 3 * page);
  const HANDLE handle = own_export(exporter, ours);
  const auto import = import_of(handle);
  char* first = nullptr;
  char* second = nullptr;
  OK(allocate(importer, &import, 3 * page, &first));
  OK(allocate(importer, &import, page, &second));
  CHECK(first != ours && second != first);
  CHECK(range_size(importer, first) == 3 * page);
  CHECK(CloseHandle(handle));  // it stayed ours
  std::strcpy(ours, from_here);
  CHECK(std::strcmp(first, from_here) == 0 && std::strcmp(second, from_here) == 0);
  free_memory(exporter, ours);
  check::destroy(exporter);
  std::strcpy(first + page, from_there);
  CHECK(std::strcmp(second + page, from_there) == 0);
  free_memory(importer, first);
  free_memory(importer, second);
  check::destroy(importer);
}

TEST(a_handle_in_another_process) {
  const auto context = check::make_context();
  char* memory = make_exportable(context, 3 * page);
  std::strcpy(memory, from_here);
  const HANDLE handle = own_export(context, memory);
  OtherProcess other;
  char order[32];
  std::snprintf(order, sizeof order, "%llx\n", static_cast<unsigned long long>(other.give(handle)));
  CHECK(CloseHandle(handle));
  other.order(order);
  CHECK(other.succeeded());
  CHECK(std::strcmp(memory + 2 * page, from_there) == 0);
  free_memory(context, memory);
  check::destroy(context);
}

TEST(an_import_outlives_its_exporter) {
  const auto context = check::make_context();
  char* memory = make_exportable(context, 3 * page);
  std::strcpy(memory, from_here);
  const HANDLE handle = own_export(context, memory);
  OtherProcess other;
  char order[32];
  std::snprintf(order, sizeof order, "%llx\n", static_cast<unsigned long long>(other.give(handle)));
  CHECK(CloseHandle(handle));
  free_memory(context, memory);
  check::destroy(context);
  other.order(order);
  CHECK(other.succeeded());
}

TEST(a_name_in_another_process) {
  const std::wstring name = L"Local\\l0py-test-" + std::to_wstring(GetCurrentProcessId());
  const HANDLE section = make_section(3 * page, name.c_str());
  auto* view = static_cast<char*>(MapViewOfFile(section, FILE_MAP_READ | FILE_MAP_WRITE, 0, 0, 0));
  std::strcpy(view, from_here);
  OtherProcess other;
  other.order("0 " + std::string(name.begin(), name.end()) + "\n");
  CHECK(other.succeeded());
  CHECK(std::strcmp(view + 2 * page, from_there) == 0);
  const auto context = check::make_context();
  const auto import = import_of(name.c_str());
  char* memory = nullptr;
  OK(allocate(context, &import, 3 * page, &memory));
  CHECK(CloseHandle(section));
  UnmapViewOfFile(view);
  CHECK(memory != nullptr && std::strcmp(memory + 2 * page, from_there) == 0);
  free_memory(context, memory);
  char* gone = nullptr;
  CHECK_SAME(allocate(context, &import, page, &gone), bad_handle());  // nobody has it any more
  check::destroy(context);
}

TEST(handles_that_are_no_memory) {
  const auto context = check::make_context();
  const HANDLE event = CreateEventW(nullptr, TRUE, FALSE, nullptr);
  const HANDLE closed = make_section(page);
  CHECK(CloseHandle(closed));
  for (const HANDLE handle : {event, closed, GetCurrentProcess(), reinterpret_cast<HANDLE>(uintptr_t{0x7ffffff0})}) {
    const auto import = import_of(handle);
    char* memory = nullptr;
    CHECK_SAME(allocate(context, &import, page, &memory), bad_handle());
    CHECK(memory == nullptr);
  }
  CHECK(CloseHandle(event));
  const auto import = import_of(L"Local\\l0py-test-nobody-has-this");
  char* memory = nullptr;
  CHECK_SAME(allocate(context, &import, page, &memory), bad_handle());
  check::destroy(context);
}

TEST(flags_that_are_not_one_kind_of_the_driver) {
  const auto context = check::make_context();
  const HANDLE section = make_section(page);
  std::vector<uint32_t> wrong = {0,
                                 ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD,
                                 ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF,
                                 ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_WIN32_KMT,
                                 ZE_EXTERNAL_MEMORY_TYPE_FLAG_D3D11_TEXTURE_KMT,
                                 opaque | ZE_EXTERNAL_MEMORY_TYPE_FLAG_D3D12_HEAP};
  const uint32_t d3d12[] = {ZE_EXTERNAL_MEMORY_TYPE_FLAG_D3D12_HEAP, ZE_EXTERNAL_MEMORY_TYPE_FLAG_D3D12_RESOURCE};
  if (!is_gpu()) {
    wrong.insert(wrong.end(), std::begin(d3d12), std::end(d3d12));
  }
  for (const uint32_t flags : wrong) {
    const auto import = import_of(section, flags);
    char* memory = nullptr;
    CHECK_SAME(allocate(context, &import, page, &memory), bad_type());
  }
  if (is_gpu()) {
    for (const uint32_t flags : d3d12) {
      const auto import = import_of(section, flags);
      char* memory = nullptr;
      OK(allocate(context, &import, page, &memory));
      free_memory(context, memory);
    }
  }
  const ze_external_memory_import_fd_t fd{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD, nullptr,
                                          ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF, 3};
  char* memory = nullptr;
  CHECK_SAME(allocate(context, &fd, page, &memory), bad_type());
  CHECK(CloseHandle(section));
  check::destroy(context);
}

TEST(a_handle_or_a_name) {
  const auto context = check::make_context();
  const HANDLE section = make_section(page, L"Local\\l0py-test-both");
  char* memory = nullptr;
  auto both = import_of(section);
  both.name = L"Local\\l0py-test-both";
  CHECK_RESULT(allocate(context, &both, page, &memory), ERROR_INVALID_ARGUMENT);
  const auto neither = import_of(HANDLE{nullptr});
  CHECK_RESULT(allocate(context, &neither, page, &memory), ERROR_INVALID_ARGUMENT);
  const auto kmt = import_of(L"Local\\l0py-test-both", ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_WIN32_KMT);
  CHECK_RESULT(allocate(context, &kmt, page, &memory), ERROR_INVALID_ARGUMENT);
  CHECK(CloseHandle(section));
  check::destroy(context);
}

TEST(a_section_that_is_too_small_shows_in_its_range) {
  const auto context = check::make_context();
  const HANDLE section = make_section(page);
  const auto import = import_of(section);
  char* memory = nullptr;
  OK(allocate(context, &import, 4 * page, &memory));  // drivers go by the section and not by the size asked for
  CHECK(range_size(context, memory) == page);
  free_memory(context, memory);
  CHECK(CloseHandle(section));
  check::destroy(context);
}

TEST(sections_for_reading_and_sections_without_memory) {
  const auto context = check::make_context();
  const HANDLE section = make_section(page);
  HANDLE readable = nullptr;
  CHECK(DuplicateHandle(GetCurrentProcess(), section, GetCurrentProcess(), &readable, FILE_MAP_READ, FALSE, 0));
  const auto import = import_of(readable);
  char* memory = nullptr;
  CHECK_SAME(allocate(context, &import, page, &memory), bad_handle());
  OK(allocate(context, &import, page, &memory, ZE_HOST_MEM_ALLOC_FLAG_MEM_READ_ONLY));
  free_memory(context, memory);
  CHECK(CloseHandle(readable));
  CHECK(CloseHandle(section));
  const HANDLE reserved = make_section(page, nullptr, PAGE_READWRITE | SEC_RESERVE);
  const auto empty = import_of(reserved);
  CHECK_SAME(allocate(context, &empty, page, &memory), bad_handle());
  CHECK(CloseHandle(reserved));
  check::destroy(context);
}

TEST(exports_of_other_memory_and_of_other_kinds) {
  const auto context = check::make_context();
  const ze_external_memory_export_desc_t wish{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC, nullptr,
                                              ZE_EXTERNAL_MEMORY_TYPE_FLAG_D3D12_HEAP};
  char* memory = nullptr;
  CHECK_SAME(allocate(context, &wish, page, &memory), bad_type());
  memory = make_exportable(context, page);
  HANDLE handle = nullptr;
  const auto other_kind = is_gpu() ? ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION : ZE_RESULT_SUCCESS;
  CHECK_SAME(export_of(context, memory, &handle, ZE_EXTERNAL_MEMORY_TYPE_FLAG_D3D12_HEAP), other_kind);
  CHECK(handle == nullptr);
  free_memory(context, memory);
  if (!is_gpu()) {
    memory = check::make_memory(context, page);
    CHECK_RESULT(export_of(context, memory, &handle), ERROR_NOT_AVAILABLE);
    free_memory(context, memory);
  }
  check::destroy(context);
}

TEST(nothing_grows) {
  constexpr int rounds = 200;
  const auto context = check::make_context();
  const auto round = [&] {
    char* memory = make_exportable(context, page);
    const HANDLE handle = own_export(context, memory);
    const auto import = import_of(handle);
    char* again = nullptr;
    OK(allocate(context, &import, page, &again));
    free_memory(context, again);
    free_memory(context, memory);
    CHECK(CloseHandle(handle));
  };
  round();
  const DWORD before = open_handles();
  for (int i = 0; i < rounds; ++i) {
    round();
  }
  CHECK(open_handles() < before + rounds / 4);  // the C++ library makes a few of its own
  check::destroy(context);
}

TEST(pages_of_a_section_and_others_are_imported_where_they_are) {
  const auto context = check::make_context();
  const HANDLE section = make_section(2 * page);
  void* view = MapViewOfFile(section, FILE_MAP_READ | FILE_MAP_WRITE, 0, 0, 0);
  void* readable = MapViewOfFile(section, FILE_MAP_READ, 0, 0, 0);
  void* own = VirtualAlloc(nullptr, 2 * page, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
  for (void* pages : {view, own}) {
    const ze_external_memmap_sysmem_ext_desc_t map{ZE_STRUCTURE_TYPE_EXTERNAL_MEMMAP_SYSMEM_EXT_DESC, nullptr, pages,
                                                   2 * page};
    char* memory = nullptr;
    OK(allocate(context, &map, 2 * page, &memory));
    CHECK(memory == pages);
    free_memory(context, memory);
  }
  void* reserved = VirtualAlloc(nullptr, 2 * page, MEM_RESERVE, PAGE_NOACCESS);
  for (void* pages : {readable, reserved}) {
    const ze_external_memmap_sysmem_ext_desc_t map{ZE_STRUCTURE_TYPE_EXTERNAL_MEMMAP_SYSMEM_EXT_DESC, nullptr, pages,
                                                   2 * page};
    char* memory = nullptr;
    CHECK(allocate(context, &map, 2 * page, &memory) != ZE_RESULT_SUCCESS);
  }
  for (void* range : {own, reserved}) {
    CHECK(VirtualFree(range, 0, MEM_RELEASE));
  }
  for (void* range : {view, readable}) {
    CHECK(UnmapViewOfFile(range));
  }
  CHECK(CloseHandle(section));
  check::destroy(context);
}

TEST(large_alignments) {
  constexpr size_t alignment = size_t{2} << 20;
  const auto context = check::make_context();
  const auto desc = check::host_desc();
  std::vector<void*> blocks(8);
  for (void*& block : blocks) {
    OK(l0.ze_mem.pfnAllocHost(context, &desc, 3 * page, alignment, &block));
    CHECK(!is_gpu() || reinterpret_cast<uintptr_t>(block) % alignment == 0);  // NPU drivers know pages alone
    std::memset(block, 0x55, 3 * page);
  }
  for (void* block : blocks) {
    free_memory(context, block);
  }
  check::destroy(context);
}
