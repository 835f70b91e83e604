// Handles that a loader wrapped, turned back into the driver's own.
#pragma once

#include "object.hpp"

namespace softdriver {

// The driver's handle inside the loader's, or null when there is no loader or it knows nothing of it.
const void* translate_loader_handle(const void* handle, Kind kind) noexcept;

}  // namespace softdriver
