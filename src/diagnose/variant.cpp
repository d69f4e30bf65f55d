#include "diagnose/variant.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace octavo::diagnose {
namespace {

using fp8::FormatChoice;
using fp8::Recipe;

// Recipes whose scales fit each block have no use for E5M2's range.
bool has_formats(Recipe recipe) {
  return recipe == Recipe::kDelayed || recipe == Recipe::kCurrent;
}

}  // namespace

Variant variant_of(const fp8::Options& options) {
  return {options.recipe, options.format, options.recipe == Recipe::kDelayed ? options.margin : 0};
}

std::string name_of(const Variant& variant) {
  std::string name(config::name_of(variant.recipe));
  if (has_formats(variant.recipe)) name += octavo::str(" ", config::name_of(variant.format));
  if (variant.margin != 0) name += octavo::str(" margin ", variant.margin);
  return name;
}

std::string keys_of(const Variant& variant, const Variant& now) {
  std::vector<std::string> keys;
  if (variant.recipe != now.recipe)
    keys.push_back(octavo::str("fp8_recipe ", config::name_of(variant.recipe)));
  if (variant.format != now.format && has_formats(variant.recipe))
    keys.push_back(octavo::str("fp8_format ", config::name_of(variant.format)));
  if (variant.margin != now.margin && variant.recipe == Recipe::kDelayed)
    keys.push_back(octavo::str("fp8_margin ", variant.margin));
  return join(keys, ", ");
}

std::vector<Variant> variants(const fp8::Options& in_use) {
  std::vector<Variant> all = {variant_of(in_use)};
  const auto add = [&](const Variant& variant) {
    if (std::ranges::find(all, variant) == all.end()) all.push_back(variant);
  };
  if (in_use.recipe == Recipe::kDelayed) add({Recipe::kDelayed, in_use.format, 0});
  for (const Recipe recipe : {Recipe::kDelayed, Recipe::kCurrent})
    for (const FormatChoice format : {FormatChoice::kHybrid, FormatChoice::kE4m3})
      add({recipe, format, 0});
  for (const Recipe recipe : {Recipe::kRowwise, Recipe::kBlockwise, Recipe::kMxfp8})
    add({recipe, FormatChoice::kE4m3, 0});
  return all;
}

}  // namespace octavo::diagnose
