#include "diagnose/variant.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/text.h"

namespace octavo::diagnose {
namespace {

using fp8::FormatChoice;
using fp8::Recipe;

bool has_formats(Recipe recipe) {
  return fp8::traits_of(recipe).chooses_format;
}

}  // namespace

Variant variant_of(const fp8::Options& options) {
  Variant variant{options.recipe, options.format,
                  fp8::uses_history(options.recipe) ? options.margin : 0};
  if (!fp8::is_fp4(options.recipe)) return variant;
  variant.hadamard = options.hadamard;
  variant.stochastic_rounding = options.stochastic_rounding;
  variant.weight_blocks = options.weight_blocks;
  return variant;
}

fp8::Options options_of(const Variant& variant) {
  return {.recipe = variant.recipe,
          .format = variant.format,
          .margin = variant.margin,
          .hadamard = variant.hadamard,
          .stochastic_rounding = variant.stochastic_rounding,
          .weight_blocks = variant.weight_blocks};
}

std::string name_of(const Variant& variant) {
  std::string name(config::name_of(variant.recipe));
  if (has_formats(variant.recipe)) name += octavo::str(" ", config::name_of(variant.format));
  if (variant.margin != 0) name += octavo::str(" margin ", variant.margin);
  if (!variant.hadamard) name += " not rotated";
  if (!variant.stochastic_rounding) name += " to nearest";
  if (!variant.weight_blocks) name += " 1x16 weights";
  return name;
}

std::vector<std::string> keys_of(const Variant& variant, const Variant& now) {
  std::vector<std::string> keys;
  if (variant.recipe != now.recipe)
    keys.push_back(octavo::str("fp8_recipe ", config::name_of(variant.recipe)));
  if (variant.format != now.format && has_formats(variant.recipe))
    keys.push_back(octavo::str("fp8_format ", config::name_of(variant.format)));
  if (variant.margin != now.margin && fp8::uses_history(variant.recipe))
    keys.push_back(octavo::str("fp8_margin ", variant.margin));
  if (!fp8::is_fp4(variant.recipe)) return keys;
  const auto add = [&](const char* key, bool value, bool before) {
    if (value != before) keys.push_back(octavo::str(key, value ? " true" : " false"));
  };
  add("fp4_hadamard", variant.hadamard, now.hadamard);
  add("fp4_stochastic_rounding", variant.stochastic_rounding, now.stochastic_rounding);
  add("fp4_weight_blocks", variant.weight_blocks, now.weight_blocks);
  return keys;
}

float factor_from_amax(const Variant& variant, fp8::Format format, float amax) {
  if (amax == 0 || !std::isfinite(amax)) return 1.0f;
  const float factor = std::ldexp(fp8::max_value(format), -static_cast<int>(variant.margin)) / amax;
  return std::fmin(factor, std::numeric_limits<float>::max());
}

std::vector<Variant> variants(const fp8::Options& in_use) {
  std::vector<Variant> all = {variant_of(in_use)};
  const auto add = [&](const Variant& variant) {
    if (std::ranges::find(all, variant) == all.end()) all.push_back(variant);
  };
  if (fp8::uses_history(in_use.recipe)) add({in_use.recipe, in_use.format, 0});
  for (const Recipe recipe : fp8::kAllRecipes) {
    if (has_formats(recipe)) add({recipe, FormatChoice::kHybrid, 0});
    add({recipe, FormatChoice::kE4m3, 0});
  }
  return all;
}

}  // namespace octavo::diagnose
