#include "fp8/recipe_traits.h"

#include <gtest/gtest.h>

#include "fp8/legality.h"
#include "fp8/recipe.h"

namespace octavo::fp8 {
namespace {

// A name in the wrong place would train something else.
TEST(RecipeTraits, NamesThatUsersType) {
  EXPECT_EQ(config::name_of(Recipe::kDelayed), "delayed");
  EXPECT_EQ(config::name_of(Recipe::kCurrent), "current");
  EXPECT_EQ(config::name_of(Recipe::kRowwise), "rowwise");
  EXPECT_EQ(config::name_of(Recipe::kBlockwise), "blockwise");
  EXPECT_EQ(config::name_of(Recipe::kMxfp8), "mxfp8");
  EXPECT_EQ(config::name_of(Recipe::kNvfp4), "nvfp4");
  EXPECT_EQ(kDefaultRecipe, config::Settings{}.fp8_recipe);
}

TEST(RecipeTraits, ScenarioNamesARecipe) {
  config::Settings s;
  s.fp8_recipe = Recipe::kRowwise;
  EXPECT_EQ(config::fp8_recipe_of(s), Recipe::kRowwise);
  s.fp8_scenario = config::Fp8Scenario::kMxfp8;
  EXPECT_EQ(config::fp8_recipe_of(s), Recipe::kMxfp8);
}

TEST(RecipeTraits, RulesAndBlocksFindTheirRecipe) {
  EXPECT_EQ(recipe_with(ScaleRule::kHistory), Recipe::kDelayed);
  EXPECT_EQ(recipe_with(Granularity::kVector), Recipe::kRowwise);
  EXPECT_EQ(recipe_with(Granularity::kBlock128), Recipe::kBlockwise);
  EXPECT_EQ(recipe_with(Granularity::kSquare128), Recipe::kBlockwise);
  EXPECT_EQ(recipe_with(Granularity::kBlock32), Recipe::kMxfp8);
  EXPECT_EQ(recipe_with(Granularity::kSquare16), Recipe::kNvfp4);
  // Otherwise recipe_with() would have to choose.
  for (const RecipeTraits& row : kRecipeTraits)
    for (const Granularity g : {row.activations, row.weights})
      if (g != Granularity::kTensor) EXPECT_EQ(recipe_with(g), row.recipe);
}

TEST(RecipeTraits, RowsAgreeWithThemselves) {
  for (const RecipeTraits& row : kRecipeTraits) {
    SCOPED_TRACE(config::name_of(row.recipe));
    EXPECT_LE(row.native.first, row.native.last);
    EXPECT_EQ(row.side_multiple % row.token_multiple, 0);
    EXPECT_EQ(refusal(row.recipe, row.side_multiple, row.side_multiple), "");
    EXPECT_EQ(token_refusal(row.recipe, row.token_multiple), "");
    EXPECT_NE(refusal(row.recipe, row.side_multiple / 2, row.side_multiple), "");
    EXPECT_NE(token_refusal(row.recipe, row.token_multiple / 2), "");
    EXPECT_GE(row.quantize_cost.read_bytes, 2) << "a BF16 value is read";
    // E8M0 has nothing but powers of two.
    if (has_e8m0_scales(row.recipe)) EXPECT_TRUE(has_power_of_two_scales(row.recipe));
    // A factor that is given is one.
    if (uses_history(row.recipe)) {
      EXPECT_EQ(row.weights, Granularity::kTensor);
      EXPECT_EQ(row.activations, Granularity::kTensor);
    }
    EXPECT_EQ(default_format(row.recipe) == FormatChoice::kHybrid, row.chooses_format);
    if (row.fallback) {
      EXPECT_FALSE(traits_of(*row.fallback).fallback) << "one step is enough";
      EXPECT_LT(traits_of(*row.fallback).native.first, row.native.first);
    }
  }
}

TEST(RecipeTraits, FourBitsAreOfTransformerEngineAlone) {
  for (const Recipe recipe : kRecipes) {
    EXPECT_TRUE(!is_fp4(recipe) && is_rehearsed_on_gpus(recipe));
    EXPECT_FALSE(traits_of(recipe).libtorch.is_none());
  }
  const RecipeTraits& row = traits_of(Recipe::kNvfp4);
  EXPECT_TRUE(is_fp4(Recipe::kNvfp4) && !is_rehearsed_on_gpus(Recipe::kNvfp4));
  EXPECT_TRUE(row.libtorch.is_none() && row.in_transformer_engine);
  EXPECT_TRUE(row.native.has(100) && row.native.has(103));
  EXPECT_FALSE(row.native.has(90) || row.native.has(110) || row.native.has(120));
  EXPECT_EQ(std::size(kAllRecipes), std::size(kRecipes) + 1);
}

TEST(RecipeTraits, ComputeCapabilities) {
  EXPECT_TRUE(traits_of(Recipe::kDelayed).native.has(120));
  EXPECT_FALSE(traits_of(Recipe::kDelayed).native.has(80));
  EXPECT_FALSE(traits_of(Recipe::kRowwise).native.has(89));
  EXPECT_TRUE(traits_of(Recipe::kBlockwise).native.has(90));
  EXPECT_TRUE(traits_of(Recipe::kBlockwise).native.has(100));
  EXPECT_FALSE(traits_of(Recipe::kBlockwise).native.has(120));
  EXPECT_FALSE(traits_of(Recipe::kBlockwise).libtorch.has(100));
  EXPECT_TRUE(traits_of(Recipe::kMxfp8).native.has(103));
  EXPECT_FALSE(traits_of(Recipe::kMxfp8).native.has(120));
}

}  // namespace
}  // namespace octavo::fp8
