#pragma once
// Facts to findings: no look at the machine happens here.

#include <span>
#include <string_view>
#include <vector>

#include "config/parse.h"
#include "fp8/execution.h"
#include "verify/facts.h"
#include "verify/finding.h"

namespace octavo::verify {

// What the user wants of the machine.
struct Requirements {
  bool fp8 = true;           // in matrix units; false: BF16, FP32 or rehearsal are asked for
  bool require_gpu = false;  // a machine without one fails
  bool te = false;           // fp8_backend te or use_te
  fp8::Recipe recipe = fp8::kDefaultRecipe;
};
Requirements requirements_of(const config::Parsed& parsed);

std::vector<Finding> judge(const Facts& facts, const Requirements& wanted);

// Its parts, in the order of the report.
std::vector<Finding> judge_gpus(const Facts& facts, const Requirements& wanted);
std::vector<Finding> judge_libraries(const Facts& facts, const Requirements& wanted);
std::vector<Finding> judge_environment(const Facts& facts);
std::vector<Finding> judge_network(const Facts& facts);
std::vector<Finding> judge_host(const Facts& facts);

// The GPU's side of fp8::Device for device number `index`.
fp8::Device device_of(const Facts& facts, size_t index);

}  // namespace octavo::verify
