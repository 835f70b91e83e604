// Whose every handle is, when several drivers stand behind this loader.
#pragma once

#include <cstdint>

#include "loader_tables.hpp"

// Handles stay the drivers' own: nothing is wrapped, so those that go around the loader (inside pNext structures, to
// functions got from zeDriverGetExtensionFunctionAddress) mean the same to everybody. The price, measured with drivers
// that do nothing: a call with one handle takes 5 ns where a single driver's, which is direct, takes 2.5; each further
// handle takes 3 ns, and making and destroying an object 30 where a single driver takes 12.

// The driver that gave this handle out; null when none did, or it has been destroyed. Takes no lock, unless other
// threads keep destroying while it looks.
const Tables* owner_of(const void* handle) noexcept;

// False when there is no memory to remember it.
bool learn(const void* handle, const Tables* driver) noexcept;

// Takes the handle out and answers whose it was: of several threads that destroy it, one gets the driver.
const Tables* forget(const void* handle) noexcept;
// The driver did not destroy it after all. Nothing happens when its number has been given out anew meanwhile.
void learn_again(const void* handle, const Tables* driver) noexcept;
