#pragma once
// The two hashes by which the hub names contents. SHA-1 is git's choice for the small files; it
// finds damage, and a forger would have to own the server anyway.

#include <cstdint>
#include <string>

#include "base/file.h"

namespace octavo::hub {

std::string sha256_of_file(const fs::path& path);    // LFS objects
std::string git_blob_of_file(const fs::path& path);  // "blob SIZE\0" and the content, SHA-1

}  // namespace octavo::hub
