#include "engine/cpu/instruction_set.h"

#include <hwy/targets.h>

#include <cstdlib>
#include <string_view>

#include "base/error.h"

namespace octavo::engine::cpu {
namespace {

// The best of Highway's targets that a CPU of this name has; those before it have lower bits.
int64_t best_target(std::string_view name) {
  if (name == "SSE41") return HWY_SSE4;
  if (name == "AVX2") return HWY_AVX2;
  if (name == "AVX512_CORE" || name == "AVX512_CORE_BF16") return HWY_AVX3;
  fail(ExitCode::kUsage, "engine",
       "OCTAVO_CPU_ISA: wanted SSE41, AVX2, AVX512_CORE or AVX512_CORE_BF16, found '", name,
       "'; unset it to use all that the CPU has");
}

}  // namespace

void limit_instruction_set() {
  static const bool done = [] {
    const char* name = std::getenv("OCTAVO_CPU_ISA");
    if (name != nullptr && *name != '\0') limit_instruction_set_to(name);
    return true;
  }();
  static_cast<void>(done);
}

void limit_instruction_set_to(std::string_view name) {
  hwy::DisableTargets(best_target(name) - 1);
}

std::string kernel_instruction_set() {
  limit_instruction_set();
  const int64_t usable = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(usable & -usable);
}

}  // namespace octavo::engine::cpu
