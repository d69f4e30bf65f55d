#pragma once
// A way to quantize the tensors of a layer: what runs, and what could run instead.

#include <string>
#include <vector>

#include "fp8/recipe.h"

namespace octavo::diagnose {

struct Variant {
  fp8::Recipe recipe = fp8::kDefaultRecipe;
  fp8::FormatChoice format = fp8::FormatChoice::kHybrid;
  int64_t margin = 0;  // of delayed alone
  // Of nvfp4 alone: as fp8::Options has them.
  bool hadamard = true, stochastic_rounding = true, weight_blocks = true;
  bool operator==(const Variant&) const = default;
};

Variant variant_of(const fp8::Options& options);
fp8::Options options_of(const Variant& variant);
std::string name_of(const Variant& variant);  // "delayed hybrid margin 8", "blockwise"
// As the keys of a config say it: "fp8_recipe current", "fp8_margin 0", … where `now` differs.
std::vector<std::string> keys_of(const Variant& variant, const Variant& now);

// The factor that delayed has after a step whose largest magnitude was `amax`; 1 when that says
// nothing.
float factor_from_amax(const Variant& variant, fp8::Format format, float amax);

// Every recipe in the formats it has; what is in use first. A margin in use is also tried without.
std::vector<Variant> variants(const fp8::Options& in_use);

}  // namespace octavo::diagnose
