#include "exports.hpp"

#include <map>
#include <mutex>

#include "behaviour.hpp"
#include "external.hpp"
#include "fork.hpp"
#include "pool.hpp"
#include "result.hpp"

namespace softdriver {
namespace {

using Kept = std::map<SystemHandle, std::weak_ptr<Allocation>>;

// Under Lock::exports. Deliberately never destroyed: other libraries call the driver while the process exits.
Kept& all_kept() {
  static auto& instance = *new Kept;
  return instance;
}

SystemHandle shared_handle(const Allocation& block) {
  const SystemHandle own = block.pool != nullptr ? block.pool->handle() : block.descriptor.get();
  if (own == no_handle) {
    throw Failure(ZE_RESULT_ERROR_NOT_AVAILABLE, "the memory was not allocated for export");
  }
  return own;
}

Descriptor copy_of(SystemHandle handle) {
  Descriptor copy = duplicate(handle);
  if (!copy.valid()) {
    throw Failure(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, "no new descriptor: " + system_error_text());
  }
  return copy;
}

void require_exports(ze_memory_type_t type) {
  const Behaviour& own = behaviour();
  if ((type == ZE_MEMORY_TYPE_HOST && !own.exports_host) || (type == ZE_MEMORY_TYPE_SHARED && !own.exports_shared)) {
    throw Failure(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "the driver does not export this kind of memory");
  }
}

void close_kept(Allocation& block) noexcept {
  all_kept().erase(block.exported.get());
  block.exported = Descriptor();
  block.export_count = 0;
}

}  // namespace

void answer_export_query(const std::shared_ptr<Allocation>& block, void* next) {
  const bool passes_over = behaviour().unknown_query == ZE_RESULT_SUCCESS;
  auto* first = static_cast<ze_base_properties_t*>(next);
  if (first != nullptr && !passes_over && first->stype != export_query) {
    throw Failure(behaviour().unknown_query,
                  "structure type " + std::to_string(first->stype) + " is no query of memory's properties");
  }
  if (auto* wanted = find_next<ze_base_properties_t>(next, export_query)) {
    require_exports(block->type);
    fill_export_query(block, *wanted);
  }
}

SystemHandle give_export(const std::shared_ptr<Allocation>& block) {
  return behaviour().keeps_exports ? keep_export(block) : copy_of(shared_handle(*block)).release();
}

SystemHandle keep_export(const std::shared_ptr<Allocation>& block) {
  std::lock_guard lock(process_lock(Lock::exports));
  if (!block->exported.valid()) {
    Descriptor made = copy_of(shared_handle(*block));
    all_kept()[made.get()] = block;
    block->exported = std::move(made);
  }
  ++block->export_count;
  return block->exported.get();
}

std::shared_ptr<Allocation> find_export(SystemHandle handle) {
  std::lock_guard lock(process_lock(Lock::exports));
  const auto found = all_kept().find(handle);
  return found != all_kept().end() ? found->second.lock() : nullptr;
}

void put_export(SystemHandle handle) {
  const std::shared_ptr<Allocation> block = find_export(handle);  // it dies, if it does, without the lock
  std::lock_guard lock(process_lock(Lock::exports));
  if (block == nullptr || block->exported.get() != handle) {
    return;  // freed meanwhile, or put back by another thread
  }
  if (--block->export_count == 0) {
    close_kept(*block);
  }
}

void end_exports(Allocation& block) noexcept {
  std::lock_guard lock(process_lock(Lock::exports));
  if (block.exported.valid()) {
    close_kept(block);
  }
}

}  // namespace softdriver
