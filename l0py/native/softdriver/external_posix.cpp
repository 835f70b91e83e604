#include "behaviour.hpp"
#include "exports.hpp"
#include "external.hpp"
#include "result.hpp"

namespace softdriver {

const ze_structure_type_t export_query = ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD;

void read_import(const ze_base_desc_t& link, Request& request) {
  if (link.stype == ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_WIN32) {
    throw Failure(behaviour().bad_handle_type, "Win32 handles cannot be imported on this system");
  }
  const auto& wanted = reinterpret_cast<const ze_external_memory_import_fd_t&>(link);
  require_import_type(wanted.flags);
  request.has_import = true;
  request.import = wanted.fd;
}

void close_imported(SystemHandle handle) noexcept { Descriptor of_the_caller(handle); }

void fill_export_query(const std::shared_ptr<Allocation>& block, ze_base_properties_t& query) {
  auto& wanted = reinterpret_cast<ze_external_memory_export_fd_t&>(query);
  if (wanted.flags != ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF) {
    switch (behaviour().other_kind) {
      case OtherKind::passed_over: return;
      case OtherKind::refused: throw Failure(ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION, "exports are dma-bufs alone");
      case OtherKind::exported: break;
    }
  }
  wanted.fd = give_export(block);
}

}  // namespace softdriver
