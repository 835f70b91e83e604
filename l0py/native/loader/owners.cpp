#include "owners.hpp"

#include <atomic>
#include <mutex>
#include <new>

#include "forever.hpp"

#ifndef _WIN32
#include <pthread.h>
#endif

namespace {

// Free while `handle` is 0. Every access is atomic: readers come at any time.
struct Slot {
  std::atomic<uintptr_t> handle{0};
  std::atomic<const Tables*> driver{nullptr};
};

// Open addressing: a handle lies in its home slot, or in the first free one behind it. The size is a power of two.
class Map {
 public:
  Map(Slot* slots, unsigned bits, const Map* old) noexcept : slots_(slots), bits_(bits), old_(old) {}

  // An empty one of twice the size.
  static Map* after(const Map& old) noexcept {
    const unsigned bits = old.bits_ + 1;
    Slot* slots = new (std::nothrow) Slot[size_t{1} << bits];
    Map* made = slots != nullptr ? new (std::nothrow) Map(slots, bits, &old) : nullptr;
    if (made == nullptr) delete[] slots;
    return made;
  }

  size_t size() const noexcept { return size_t{1} << bits_; }
  Slot& slot(size_t place) const noexcept { return slots_[place]; }
  size_t next(size_t place) const noexcept { return (place + 1) & (size() - 1); }
  // How far behind `from` a place lies.
  size_t distance(size_t from, size_t place) const noexcept { return (place - from) & (size() - 1); }
  // Handles are addresses, whose low bits hardly differ: multiplying carries every bit into the high ones.
  size_t home(uintptr_t handle) const noexcept { return (uint64_t{handle} * 0x9E3779B97F4A7C15u) >> (64 - bits_); }

  // The slot with the handle, or the free one where it belongs; null when there is neither.
  Slot* find(uintptr_t handle) const noexcept {
    size_t place = home(handle);
    for (size_t looked = 0; looked < size(); ++looked, place = next(place)) {
      const uintptr_t here = slots_[place].handle.load(std::memory_order_acquire);
      if (here == handle || here == 0) return &slots_[place];
    }
    return nullptr;
  }

  const Tables* driver(uintptr_t handle) const noexcept {
    const Slot* slot = find(handle);
    if (slot == nullptr || slot->handle.load(std::memory_order_acquire) != handle) return nullptr;
    return slot->driver.load(std::memory_order_acquire);
  }

  // The driver first: whoever sees the handle sees it too.
  static void fill(Slot& slot, uintptr_t handle, const Tables* driver) noexcept {
    slot.driver.store(driver, std::memory_order_release);
    slot.handle.store(handle, std::memory_order_release);
  }

  // Empties a slot, and moves up those behind it that would no longer be found from their homes.
  void remove(Slot& slot) noexcept {
    size_t hole = static_cast<size_t>(&slot - slots_);
    for (size_t place = next(hole);; place = next(place)) {
      const uintptr_t handle = slots_[place].handle.load(std::memory_order_relaxed);
      if (handle == 0) break;
      if (distance(home(handle), place) >= distance(hole, place)) {
        fill(slots_[hole], handle, slots_[place].driver.load(std::memory_order_relaxed));
        hole = place;
      }
    }
    slots_[hole].handle.store(0, std::memory_order_release);
  }

 private:
  Slot* const slots_;
  const unsigned bits_;
  // Kept, because readers may be in it: all old ones together are smaller than the one in use.
  [[maybe_unused]] const Map* const old_;
};

constexpr unsigned first_bits = 10;
Slot first_slots[size_t{1} << first_bits];
Map first_map{first_slots, first_bits, nullptr};

std::atomic<Map*> current_map{&first_map};
// Odd while entries move. What a reader found counts only when this was even and the same before and after.
std::atomic<uint64_t> version{0};
size_t used = 0;  // under the lock, as is every change

// Held for moments only, never while a driver is called.
Forever<std::mutex> lock;

#ifndef _WIN32
// A fork waits for it, so that the child finds it free.
void hold() { lock.value.lock(); }
void release() { lock.value.unlock(); }

[[maybe_unused]] const int fork_handlers = pthread_atfork(hold, release, release);
#endif

uintptr_t number_of(const void* handle) noexcept { return reinterpret_cast<uintptr_t>(handle); }

// The old map stays in use when there is no memory for a larger one.
Map& grow(Map& map) noexcept {
  Map* larger = Map::after(map);
  if (larger == nullptr) return map;
  for (size_t place = 0; place < map.size(); ++place) {
    const uintptr_t handle = map.slot(place).handle.load(std::memory_order_relaxed);
    if (handle != 0) Map::fill(*larger->find(handle), handle, map.slot(place).driver.load(std::memory_order_relaxed));
  }
  current_map.store(larger, std::memory_order_release);
  return *larger;
}

bool enter(uintptr_t handle, const Tables* driver, bool replace) noexcept {
  std::lock_guard guard(lock.value);
  Map* map = current_map.load(std::memory_order_relaxed);
  Slot* slot = map->find(handle);
  if (slot != nullptr && slot->handle.load(std::memory_order_relaxed) == handle) {
    if (replace) slot->driver.store(driver, std::memory_order_release);
    return true;
  }
  if (2 * (used + 1) > map->size()) {
    map = &grow(*map);
    slot = map->find(handle);
  }
  // One slot stays free: it is where looking and moving end.
  if (slot == nullptr || used + 1 >= map->size()) return false;
  Map::fill(*slot, handle, driver);
  ++used;
  return true;
}

}  // namespace

const Tables* owner_of(const void* handle) noexcept {
  if (handle == nullptr) return nullptr;
  for (int attempt = 0; attempt < 16; ++attempt) {
    const uint64_t before = version.load(std::memory_order_acquire);
    const Tables* found = current_map.load(std::memory_order_acquire)->driver(number_of(handle));
    if (before % 2 == 0 && version.load(std::memory_order_relaxed) == before) return found;
  }
  std::lock_guard guard(lock.value);
  return current_map.load(std::memory_order_relaxed)->driver(number_of(handle));
}

bool learn(const void* handle, const Tables* driver) noexcept {
  return handle == nullptr || enter(number_of(handle), driver, true);
}

void learn_again(const void* handle, const Tables* driver) noexcept { enter(number_of(handle), driver, false); }

const Tables* forget(const void* handle) noexcept {
  if (handle == nullptr) return nullptr;
  std::lock_guard guard(lock.value);
  Map& map = *current_map.load(std::memory_order_relaxed);
  Slot* slot = map.find(number_of(handle));
  if (slot == nullptr || slot->handle.load(std::memory_order_relaxed) != number_of(handle)) return nullptr;
  const Tables* driver = slot->driver.load(std::memory_order_relaxed);
  const uint64_t before = version.load(std::memory_order_relaxed);
  version.store(before + 1, std::memory_order_relaxed);
  map.remove(*slot);
  version.store(before + 2, std::memory_order_release);
  --used;
  return driver;
}
