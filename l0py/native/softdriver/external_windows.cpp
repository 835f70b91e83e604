#include "behaviour.hpp"
#include "exports.hpp"
#include "external.hpp"
#include "result.hpp"
#include "windows_api.hpp"

namespace softdriver {
namespace {

constexpr auto kmt_types =
    ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_WIN32_KMT | ZE_EXTERNAL_MEMORY_TYPE_FLAG_D3D11_TEXTURE_KMT;

// A section by the name that it was given, as far as this user may use it.
Descriptor open_by_name(const wchar_t* name) {
  for (const DWORD access : {FILE_MAP_READ | FILE_MAP_WRITE, FILE_MAP_READ}) {
    if (const HANDLE opened = OpenFileMappingW(access, FALSE, name)) {
      return Descriptor(opened);
    }
  }
  throw Failure(behaviour().bad_handle, "there is no section of this name: " + system_error_text());
}

}  // namespace

const ze_structure_type_t export_query = ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_WIN32;

void read_import(const ze_base_desc_t& link, Request& request) {
  if (link.stype == ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD) {
    throw Failure(behaviour().bad_handle_type, "file descriptors cannot be imported on this system");
  }
  const auto& wanted = reinterpret_cast<const ze_external_memory_import_win32_handle_t&>(link);
  if ((wanted.flags & kmt_types) != 0 && wanted.name != nullptr) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "a KMT handle has no name");
  }
  if ((wanted.handle == nullptr) == (wanted.name == nullptr)) {
    throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "an import has either a handle or a name");
  }
  require_import_type(wanted.flags);
  if (wanted.name != nullptr) {
    request.opened = open_by_name(static_cast<const wchar_t*>(wanted.name));
  }
  request.has_import = true;
  request.import = request.opened.valid() ? request.opened.get() : wanted.handle;
}

// NT handles always stay the caller's.
void close_imported(SystemHandle) noexcept {}

void fill_export_query(const std::shared_ptr<Allocation>& block, ze_base_properties_t& query) {
  auto& wanted = reinterpret_cast<ze_external_memory_export_win32_handle_t&>(query);
  if (wanted.flags == ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_WIN32) {
    wanted.handle = give_export(block);
  } else if (behaviour().other_kind != OtherKind::passed_over) {
    throw Failure(ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION, "exports are opaque NT handles alone");
  }
}

}  // namespace softdriver
