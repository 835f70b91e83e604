// Allocations: memfd-backed blocks, imported fds and imported host pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "level_zero.h"
#include "pages.hpp"

namespace softdriver {

// Where a block's pages come from.
enum class Origin : uint8_t { created, imported_fd, imported_pages };

// One block of memory. Its destructor unmaps and closes what it owns and gives its bytes back to the accounts.
class Allocation {
 public:
  explicit Allocation(Origin origin) noexcept;
  ~Allocation();
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  // Whether all of the range lies in the block.
  bool holds(const void* address, size_t bytes) const noexcept;

  const Origin origin;
  const uint64_t id;  // never 0, never used twice
  std::byte* base = nullptr;
  size_t size = 0;    // what the caller asked for (an import: what the fd holds)
  size_t mapped = 0;  // what was mapped by the driver; 0 when the caller's own pages were imported
  ze_memory_type_t type = ZE_MEMORY_TYPE_UNKNOWN;
  Descriptor descriptor;        // kept only for exports: pages stay alive by their mapping
  uint64_t device_address = 0;  // where the device sees it: never the CPU's address
  bool read_only = false;       // the device must not write
  uint64_t accounted = 0;
};

// A context's blocks by address. Thread safe.
class Allocations {
 public:
  // Adds a block at an address that the system gave. A block found there is stale (its owner unmapped imported pages
  // without freeing the import) and is forgotten.
  void add(std::shared_ptr<Allocation> block);
  // Adds a block at the caller's own address: false when another block is there already.
  bool add_import(std::shared_ptr<Allocation> block);
  // The block that holds the address (interior addresses included), or null.
  std::shared_ptr<Allocation> find(const void* address) const;
  // Takes out the block that begins at the address, or null.
  std::shared_ptr<Allocation> take(const void* base);
  // Forgets all blocks; those that a running command still holds live until it is done.
  void clear();

 private:
  using Blocks = std::map<uintptr_t, std::shared_ptr<Allocation>>;
  // The first block that ends behind `address`.
  Blocks::const_iterator first_behind(uintptr_t address) const;
  bool overlaps(const Allocation& block) const;

  Blocks blocks_;  // under Lock::allocations
};

// Live blocks of all contexts, by origin.
struct BlockFigures {
  uint64_t created, imported_fds, imported_pages;
};
BlockFigures block_figures() noexcept;

}  // namespace softdriver
