// Descriptors of the driver's memory that others get.
#pragma once

#include <memory>

#include "memory.hpp"

namespace softdriver {

// Fills the structure that a query of memory's properties was chained with: a descriptor of it.
void answer_export_query(const std::shared_ptr<Allocation>& block, void* next);

// A descriptor of the block's memory: the caller's own, or one that the driver keeps until the memory is freed or it
// was put back as often as it was given out.
SystemHandle give_export(const std::shared_ptr<Allocation>& block);
SystemHandle keep_export(const std::shared_ptr<Allocation>& block);  // always one that the driver keeps
// The block that a kept descriptor is of, or null.
std::shared_ptr<Allocation> find_export(SystemHandle handle);
void put_export(SystemHandle handle);
// Closes what is kept of a block that is freed.
void end_exports(Allocation& block) noexcept;

}  // namespace softdriver
