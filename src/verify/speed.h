#pragma once
// One linear layer's GEMMs in BF16 and in FP8: whether FP8 can pay on this device.

#include <string>
#include <vector>

#include "engine/op_table.h"
#include "fp8/recipe.h"
#include "verify/finding.h"

namespace octavo::verify {

// Seconds of the three GEMMs of one layer, x[size, size] and w[size, size].
struct LayerSpeed {
  int64_t size = 0;
  fp8::Recipe recipe = fp8::kDefaultRecipe;
  bool native = false;        // FP8 matrix units; otherwise the rehearsal
  double bf16 = 0;            // GEMMs
  double fp8 = 0;             // GEMMs of matrices that are quantized already
  double fp8_with_casts = 0;  // with the quantizing of x and dy, both copies; w's are kept
  std::string problem;
};

// `target.fp8`: whose kernels.
LayerSpeed measure_layer_speed(const engine::Target& target, fp8::Recipe recipe);

// `recipe` native on this device?
Finding judge_speed(const LayerSpeed& speed);

}  // namespace octavo::verify
