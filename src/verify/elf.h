#pragma once

#include <string>
#include <vector>

#include "base/file.h"

namespace octavo::verify {

// The sonames that a shared library asks for (DT_NEEDED), without loading it; empty when the file
// is not a 64-bit library of this machine's byte order.
std::vector<std::string> needed_libraries(const fs::path& file);

}  // namespace octavo::verify
