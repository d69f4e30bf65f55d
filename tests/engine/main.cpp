// test_engine: the tests; with --speed a table of rates, with --support-table [FILE] the table of
// who serves what (written into FILE, or printed), with --instruction-sets those that are used.

#include <gtest/gtest.h>

#include <cstdio>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "engine/cpu/gemm.h"
#include "engine/cpu/instruction_set.h"
#include "engine/modes.h"

namespace {

int write_support_table(const char* path) {
  if (path == nullptr) {
    std::fputs(octavo::engine::support_table().c_str(), stdout);
    return 0;
  }
  const std::string document = octavo::read_file(path, 1 << 20);
  octavo::write_file_atomic(path, octavo::engine::with_support_table(document));
  return 0;
}

// Which instruction sets the tests are about: what the CPU has, or what variables leave of it.
void print_instruction_sets() {
  std::printf("instruction sets: kernels=%s gemms=%s\n",
              octavo::engine::cpu::kernel_instruction_set().c_str(),
              octavo::engine::cpu::gemm_instruction_set().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  try {
    if (mode == "--speed") {
      octavo::engine::print_speed();
      return 0;
    }
    if (mode == "--instruction-sets") {
      print_instruction_sets();
      return 0;
    }
    if (mode == "--support-table") return write_support_table(argc > 2 ? argv[2] : nullptr);
  } catch (const octavo::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(error.code());
  }
  testing::InitGoogleTest(&argc, argv);
  print_instruction_sets();
  return RUN_ALL_TESTS();
}
