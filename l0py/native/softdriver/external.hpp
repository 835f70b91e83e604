// Memory's handles of the operating system, in the structures of the API that bring them: each system has its own.
#pragma once

#include <memory>

#include "memory.hpp"

namespace softdriver {

// The import that a link of a description asks for, which is one by a handle of either system.
void read_import(const ze_base_desc_t& link, Request& request);
// Ends an import by a driver that closes what it has imported.
void close_imported(SystemHandle handle) noexcept;

// The structure with which memory's properties are asked for a handle, and what that gets.
extern const ze_structure_type_t export_query;
void fill_export_query(const std::shared_ptr<Allocation>& block, ze_base_properties_t& query);

}  // namespace softdriver
