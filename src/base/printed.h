#pragma once
// printf into a string, for tables whose columns stand below each other.

#include <string>

namespace octavo {

// At most 511 bytes: the lines of tables.
__attribute__((format(printf, 1, 2))) std::string printed(const char* format, ...);

}  // namespace octavo
