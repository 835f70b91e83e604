#include "pool.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "fork.hpp"
#include "result.hpp"

namespace softdriver {
namespace {

// Under Lock::pools. Deliberately never destroyed: other libraries call the driver while the process exits.
std::vector<std::weak_ptr<Pool>>& all_pools() {
  static auto& instance = *new std::vector<std::weak_ptr<Pool>>;
  return instance;
}

constexpr size_t round_up(size_t value, size_t step) { return (value + step - 1) / step * step; }

}  // namespace

Pool::Pool(ze_memory_type_t type) : type_(type), memory_(create_memory(size)) {
  base_ = memory_.valid() ? map_pages(memory_.get(), size, size, true) : nullptr;
  if (base_ == nullptr) {
    throw Failure(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, "no memory for a pool: " + system_error_text());
  }
}

Pool::~Pool() {
  if (base_ != nullptr) {
    unmap_pages(base_, size);
  }
}

std::shared_ptr<Pool> Pool::with_room(ze_memory_type_t type, size_t bytes, size_t alignment, std::byte** piece) {
  std::shared_ptr<Pool> kept;  // should this be a pool's last owner, it dies when the lock is free again
  std::lock_guard lock(process_lock(Lock::pools));
  auto& pools = all_pools();
  pools.erase(std::remove_if(pools.begin(), pools.end(), [](const auto& pool) { return pool.expired(); }), pools.end());
  for (const auto& pool : pools) {
    kept = pool.lock();
    *piece = kept != nullptr && kept->type_ == type ? kept->take(bytes, alignment) : nullptr;
    if (*piece != nullptr) {
      return kept;
    }
  }
  kept.reset(new Pool(type));
  pools.push_back(kept);
  *piece = kept->take(bytes, alignment);
  return kept;
}

std::byte* Pool::take(size_t bytes, size_t alignment) {
  const size_t length = round_to_pages(bytes);
  const size_t step = std::max(alignment, page_size);
  size_t offset = 0;
  for (const auto& [start, used] : taken_) {
    if (offset + length <= start) {
      break;
    }
    offset = round_up(start + used, step);
  }
  if (offset + length > size) {
    return nullptr;
  }
  taken_.emplace(offset, length);
  std::memset(base_ + offset, 0, length);
  return base_ + offset;
}

void Pool::give_back(std::byte* piece) noexcept {
  std::lock_guard lock(process_lock(Lock::pools));
  taken_.erase(offset(piece));
}

}  // namespace softdriver
