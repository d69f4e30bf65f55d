#pragma once
// The files of configs/, which are part of the program: cmake/embed_examples.cmake.

#include <span>
#include <string>
#include <string_view>

#include "base/file.h"

namespace octavo::cli {

struct Example {
  std::string_view name;  // of the file, without .yaml
  std::string_view text;
};

std::span<const Example> example_files();

// `text` for a file outside of the repository: the first line names the schema in the folder
// `schemas`, or says how to get one when it has none, and commands name files without configs/.
std::string as_own_file(std::string_view text, const fs::path& schemas);

}  // namespace octavo::cli
