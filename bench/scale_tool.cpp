// Makes the tables of docs/reference/scale-tables.md again: scale_tool FILE writes it, scale_tool
// --check FILE fails when they are not what the code says now.

#include <iostream>

#include "base/error.h"
#include "base/file.h"
#include "plan/scale.h"

int main(int argc, char** argv) {
  try {
    const bool checks = argc == 3 && std::string_view(argv[1]) == "--check";
    if (!checks && argc != 2)
      octavo::fail(octavo::ExitCode::kUsage, "bench", "wanted: scale_tool [--check] FILE");
    const std::string path = argv[argc - 1];
    const std::string document = octavo::read_file(path, 1 << 20);
    const std::string made = octavo::plan::with_scale_tables(document);
    if (!checks) octavo::write_file_atomic(path, made);
    std::cout << "tables=6 changed=" << (made == document ? 0 : 1) << "\n";
    return checks && made != document ? 1 : 0;
  } catch (const octavo::Error& error) {
    std::cerr << "error: " << error.what() << "\n";
    return static_cast<int>(error.code());
  }
}
