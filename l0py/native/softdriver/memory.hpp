// Allocations: memfd-backed blocks, imported fds and imported host pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "behaviour.hpp"
#include "level_zero.h"
#include "pages.hpp"

namespace softdriver {

class Context;
class Object;

// Where a block's pages come from.
enum class Origin : uint8_t { created, imported_fd, imported_pages, mapping };
inline constexpr size_t origin_count = 4;

class Pool;

// One block of memory. Its destructor unmaps and closes what it owns and gives its bytes back to the accounts.
class Allocation {
 public:
  explicit Allocation(Origin origin) noexcept;
  ~Allocation();
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  // Where the block begins in the memory that its descriptor is of.
  size_t offset_in_export() const noexcept;
  // Whether all of the range lies in the block.
  bool holds(const void* address, size_t bytes) const noexcept;

  const Origin origin;
  const uint64_t id;  // never 0, never used twice
  std::byte* base = nullptr;
  size_t size = 0;    // what the caller asked for (an import: what the fd holds)
  size_t mapped = 0;  // what was mapped by the driver; 0 when the caller's own pages were imported
  ze_memory_type_t type = ZE_MEMORY_TYPE_UNKNOWN;
  Descriptor descriptor;          // kept only for exports: pages stay alive by their mapping
  Descriptor exported;            // what exports gave out, where the driver keeps it; under Lock::exports
  uint32_t export_count = 0;      // how often it was given out
  std::shared_ptr<Pool> pool;     // whose memory it is, for a block that has none of its own
  uint64_t device_address = 0;    // where the device sees it: never the CPU's address
  bool read_only = false;         // the device must not write
  bool no_access = false;         // nor read
  std::shared_ptr<Object> owner;  // what a mapping is of
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
  // Takes out the block that begins at the address, or null. Where the driver frees from within, that holds it.
  std::shared_ptr<Allocation> take(const void* address);
  // Takes out what a mapping of virtual memory put at the address, or null.
  std::shared_ptr<Allocation> take_mapping(const void* base);
  // Forgets all blocks; those that a running command still holds live until it is done.
  void clear();

 private:
  using Blocks = std::map<uintptr_t, std::shared_ptr<Allocation>>;
  // The first block that ends behind `address`.
  Blocks::const_iterator first_behind(uintptr_t address) const;
  bool overlaps(const Allocation& block) const;
  std::shared_ptr<Allocation> take_at(Blocks::const_iterator found);

  Blocks blocks_;  // under Lock::allocations
};

// What an allocation asks for.
struct Request {
  ze_memory_type_t type;
  size_t size;
  size_t alignment;
  bool read_only = false;
  bool exportable = false;
  bool has_import = false;
  SystemHandle import = no_handle;
  Descriptor opened = Descriptor();  // the import's, when it is asked for by a name
  const ze_external_memmap_sysmem_ext_desc_t* pages = nullptr;
};

// An import must name one kind that the imitated driver imports.
void require_import_type(ze_external_memory_type_flags_t flags);
// What the structures chained to a description ask for, as the imitated driver reads them.
void read_chain(const void* next, Chain chain, Request& request);
// A block of new memory, or of that behind `request.import`. It is in no context yet.
std::shared_ptr<Allocation> make_block(const Request& request);
// Frees the block that `zeMemFree` means by the address: INVALID_ARGUMENT when there is none.
void free_memory(Context& context, void* address);
// Takes a block into a context, which is where everybody finds it from then on.
void* add_block(Context& context, std::shared_ptr<Allocation> block);
// Closes an imported descriptor, if there is one and the imitated driver `closes`.
void settle_import(const Request& request, bool closes) noexcept;

// Live blocks of all contexts, by origin.
struct BlockFigures {
  uint64_t created, imported_fds, imported_pages, mappings;
};
BlockFigures block_figures() noexcept;

}  // namespace softdriver
