#pragma once
// A recipe by the name that users type.

#include <string_view>

#include "base/error.h"
#include "config/settings.h"
#include "fp8/recipe_traits.h"

namespace octavo {

inline fp8::Recipe named_recipe(std::string_view name) {
  for (const fp8::Recipe recipe : fp8::kAllRecipes)
    if (config::name_of(recipe) == name) return recipe;
  fail(ExitCode::kUsage, "test", "no recipe is called ", name);
}

}  // namespace octavo
