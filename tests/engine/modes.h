#pragma once
// What the harness's program does beside testing, and what its parts share.

#include <string>

#include "engine/cpu/gemm.h"
#include "engine/op_table.h"

namespace octavo::engine {

// --speed: every implementation on the shapes of GPT-2 124M with 4 x 256 tokens, on stdout.
void print_speed();

// --support-table: which implementation serves which dtype and device, as Markdown.
std::string support_table();
// `document` with the part between the two marks replaced by the table of this build.
std::string with_support_table(const std::string& document);

// Lines that would be refused only because another is faster here are tested too.
inline Target all_that_exist(at::ScalarType compute) {
  return {
      .device = at::kCPU,
      .compute = compute,
      .bf16_units = cpu::bf16_gemms_missing().empty() ? Bf16Units::kPresent : Bf16Units::kAsFound};
}

}  // namespace octavo::engine
