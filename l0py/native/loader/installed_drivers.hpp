// The drivers that a system offers when the environment names none.
#pragma once

#include <string>
#include <vector>

// Libraries in the order in which their drivers are listed. Names of one driver are separated by a bar: the first
// that can be opened is it.
std::vector<std::string> installed_drivers();
