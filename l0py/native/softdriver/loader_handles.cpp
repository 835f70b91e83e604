#include "loader_handles.hpp"

#include <atomic>

#include "pages.hpp"
#include "shared_library.hpp"

namespace softdriver {
namespace {

#ifdef _WIN32
constexpr char loader_name[] = "ze_loader.dll";
#else
constexpr char loader_name[] = "libze_loader.so.1";
#endif

using Translate = ze_result_t(ZE_APICALL*)(zel_handle_type_t, void*, void**);

// The loader already in the process. It is never closed again: the function found in it is kept.
Translate find_translate() noexcept {
  static std::atomic<Translate> known{nullptr};
  Translate translate = known.load(std::memory_order_acquire);
  if (translate == nullptr) {
    if (void* loader = platform::loaded_library(loader_name)) {
      translate = reinterpret_cast<Translate>(platform::find_symbol(loader, "zelLoaderTranslateHandle"));
      known.store(translate, std::memory_order_release);
    }
  }
  return translate;
}

// False for what the loader does not know: the NPU extensions' own objects.
bool loader_type(Kind kind, zel_handle_type_t* type) noexcept {
  switch (kind) {
    case Kind::driver: *type = ZEL_HANDLE_DRIVER; return true;
    case Kind::device: *type = ZEL_HANDLE_DEVICE; return true;
    case Kind::context: *type = ZEL_HANDLE_CONTEXT; return true;
    case Kind::queue: *type = ZEL_HANDLE_COMMAND_QUEUE; return true;
    case Kind::list: *type = ZEL_HANDLE_COMMAND_LIST; return true;
    case Kind::fence: *type = ZEL_HANDLE_FENCE; return true;
    case Kind::event_pool: *type = ZEL_HANDLE_EVENT_POOL; return true;
    case Kind::event: *type = ZEL_HANDLE_EVENT; return true;
    case Kind::image: *type = ZEL_HANDLE_IMAGE; return true;
    case Kind::physical_mem: *type = ZEL_HANDLE_PHYSICAL_MEM; return true;
    default: return false;
  }
}

}  // namespace

const void* translate_loader_handle(const void* handle, Kind kind) noexcept {
  zel_handle_type_t type;
  // Loaders read the handle as an address of theirs without a look, so a wrong one would crash the process.
  if (!loader_type(kind, &type) || !is_readable(handle, 2 * sizeof(void*))) {
    return nullptr;
  }
  Translate translate = find_translate();
  void* inner = nullptr;
  if (translate == nullptr || translate(type, const_cast<void*>(handle), &inner) != ZE_RESULT_SUCCESS) {
    return nullptr;
  }
  return inner;
}

}  // namespace softdriver
