#pragma once
// One row for each recipe: everything about it that is data. Code outside src/fp8 asks the row and
// does not name recipes, so that a new one is a row here, its rule in recipe.cpp, its kernels and
// its tests (docs/internals/life-of-a-batch.md, "To add a recipe").

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>

#include "config/settings.h"

namespace octavo::fp8 {

using Recipe = config::Fp8Recipe;

inline constexpr Recipe kDefaultRecipe = Recipe::kDelayed;
// All, and those in eight bits, which every implementation has. nvfp4, in four, is rehearsed on
// CPUs alone (is_rehearsed_on_gpus), and native by Transformer Engine alone.
inline constexpr auto& kAllRecipes = config::kFp8Recipes;
inline constexpr std::array kRecipes = {Recipe::kDelayed, Recipe::kCurrent, Recipe::kRowwise,
                                        Recipe::kBlockwise, Recipe::kMxfp8};

// What shares one scale.
enum class Granularity : uint8_t {
  kTensor,     // the whole matrix
  kVector,     // a row (row copy) or a column (column copy)
  kBlock128,   // 128 elements along the sum
  kBlock32,    // 32 of them
  kSquare128,  // 128 x 128
  kBlock16,    // 16 along the sum
  kSquare16,   // 16 x 16
};
// The same numbers serve both directions: one scale for all, or squares.
constexpr bool is_symmetric(Granularity g) {
  return g == Granularity::kTensor || g == Granularity::kSquare128 || g == Granularity::kSquare16;
}

// How a scale is made; scale_from_amax() in recipe.h says it in numbers.
enum class ScaleRule : uint8_t {
  kHistory,            // from the amax of earlier steps (fp8/scaling.h): given to the quantizer
  kTe,                 // Transformer Engine: MAX / amax
  kTePowerOfTwo,       // the same, rounded down to a power of two
  kTorchaoPowerOfTwo,  // torchao: the same of an amax that is at least 1e-12
  kE8m0Ceil,           // OCP MX and cuBLAS: the smallest power of two at or above amax / MAX
  kNvfp4,              // of a block in E4M3, and of the matrix in FP32: nvfp4.h
};
// What a scale is stored as beside its codes.
enum class ScaleType : uint8_t { kFp32, kE8M0, kE4M3 };

// Compute capabilities, as major * 10 + minor, from the first to the last that have it.
struct ComputeCapabilities {
  static constexpr int kNewest = 1 << 20;
  static constexpr ComputeCapabilities none();
  int first, last;
  constexpr bool has(int capability) const { return capability >= first && capability <= last; }
  constexpr bool is_none() const { return last < first; }
};

constexpr ComputeCapabilities ComputeCapabilities::none() {
  return {0, -1};
}

struct LibraryVersion {
  int major = 0, minor = 0;  // 0.0: any
  constexpr bool any() const { return major == 0; }
};

// What `octavo plan` takes for the time of quantizing; bytes for each BF16 value of an activation
// or gradient.
struct QuantizeCost {
  double read_bytes;           // by its kernels: 2 in one pass, 2 more for each further one
  bool reads_for_each_layout;  // row and column copy have scales of their own and a pass each
};

struct RecipeTraits {
  Recipe recipe;

  // Numerics.
  Granularity activations;  // of inputs and gradients
  Granularity weights;
  ScaleRule scale_rule;
  ScaleType scale_type;
  bool chooses_format;  // fp8_format decides; otherwise every copy is E4M3

  // Alignment: what the sides of a weight, and the tokens of a micro-batch, are multiples of.
  int64_t side_multiple, token_multiple;

  // Devices and libraries.
  ComputeCapabilities native;      // GPUs with matrix units for it
  ComputeCapabilities libtorch;    // of these the ones for which libtorch has kernels
  std::optional<Recipe> fallback;  // runs on GPUs that lack it; none: BF16 runs
  bool in_transformer_engine;      // on all of them; otherwise libtorch's kernels alone have it
  LibraryVersion cublaslt;         // the least that multiplies by it

  QuantizeCost quantize_cost;
};

// blockwise has matrix units on Hopper. On 10.x and 11.x Transformer Engine multiplies the same
// codes by mxfp8's GEMMs: each scale, a power of two, is repeated for the four blocks of 32 that it
// is of, so the products are the same. mxfp8 does not run on compute capability 12.x, where cuBLAS
// had it only in part and Transformer Engine turns it off. The last of blockwise's 128 tokens may
// be short, mxfp8's blocks may not. nvfp4 has matrix units on 10.0 and 10.3, where Transformer
// Engine trains by it; libtorch has no kernels that make its copies.
inline constexpr std::array kRecipeTraits = {
    RecipeTraits{.recipe = Recipe::kDelayed,
                 .activations = Granularity::kTensor,
                 .weights = Granularity::kTensor,
                 .scale_rule = ScaleRule::kHistory,
                 .scale_type = ScaleType::kFp32,
                 .chooses_format = true,
                 .side_multiple = 16,
                 .token_multiple = 16,
                 .native = {89, ComputeCapabilities::kNewest},
                 .libtorch = {89, ComputeCapabilities::kNewest},
                 .fallback = {},
                 .in_transformer_engine = true,
                 .cublaslt = {},
                 .quantize_cost = {2, false}},
    RecipeTraits{.recipe = Recipe::kCurrent,
                 .activations = Granularity::kTensor,
                 .weights = Granularity::kTensor,
                 .scale_rule = ScaleRule::kTe,
                 .scale_type = ScaleType::kFp32,
                 .chooses_format = true,
                 .side_multiple = 16,
                 .token_multiple = 16,
                 .native = {89, ComputeCapabilities::kNewest},
                 .libtorch = {89, ComputeCapabilities::kNewest},
                 .fallback = {},
                 .in_transformer_engine = true,
                 .cublaslt = {},
                 .quantize_cost = {4, false}},
    RecipeTraits{.recipe = Recipe::kRowwise,
                 .activations = Granularity::kVector,
                 .weights = Granularity::kVector,
                 .scale_rule = ScaleRule::kTorchaoPowerOfTwo,
                 .scale_type = ScaleType::kFp32,
                 .chooses_format = false,
                 .side_multiple = 16,
                 .token_multiple = 16,
                 .native = {90, ComputeCapabilities::kNewest},
                 .libtorch = {90, ComputeCapabilities::kNewest},
                 .fallback = {},
                 .in_transformer_engine = false,
                 .cublaslt = {},
                 .quantize_cost = {4, true}},
    RecipeTraits{.recipe = Recipe::kBlockwise,
                 .activations = Granularity::kBlock128,
                 .weights = Granularity::kSquare128,
                 .scale_rule = ScaleRule::kTePowerOfTwo,
                 .scale_type = ScaleType::kFp32,
                 .chooses_format = false,
                 .side_multiple = 128,
                 .token_multiple = 16,
                 .native = {90, 119},
                 .libtorch = {90, 90},
                 .fallback = {},
                 .in_transformer_engine = true,
                 .cublaslt = {12, 9},
                 .quantize_cost = {6, false}},
    RecipeTraits{.recipe = Recipe::kMxfp8,
                 .activations = Granularity::kBlock32,
                 .weights = Granularity::kBlock32,
                 .scale_rule = ScaleRule::kE8m0Ceil,
                 .scale_type = ScaleType::kE8M0,
                 .chooses_format = false,
                 .side_multiple = 32,
                 .token_multiple = 32,
                 .native = {100, 119},
                 .libtorch = {100, 119},
                 .fallback = Recipe::kDelayed,
                 .in_transformer_engine = true,
                 .cublaslt = {12, 8},
                 .quantize_cost = {4, false}},
    RecipeTraits{
        .recipe = Recipe::kNvfp4,
        .activations = Granularity::kBlock16,
        .weights = Granularity::kSquare16,
        .scale_rule = ScaleRule::kNvfp4,
        .scale_type = ScaleType::kE4M3,
        .chooses_format = false,
        .side_multiple = 32,
        .token_multiple = 32,
        .native = {100, 103},
        .libtorch = ComputeCapabilities::none(),
        .fallback = Recipe::kDelayed,
        .in_transformer_engine = true,
        .cublaslt = {12, 8},
        // Amax, codes of rows; rotation, written once in BF16; codes of columns: 11 in all.
        .quantize_cost = {4.5, true}},
};

constexpr bool has_row_for_each_recipe() {
  if (kRecipeTraits.size() != std::size(kAllRecipes)) return false;
  for (size_t i = 0; i < kRecipeTraits.size(); ++i)
    if (kRecipeTraits[i].recipe != kAllRecipes[i] || static_cast<size_t>(kAllRecipes[i]) != i)
      return false;
  return true;
}
static_assert(has_row_for_each_recipe(), "rows are in the order of config::Fp8Recipe");

constexpr const RecipeTraits& traits_of(Recipe recipe) {
  return kRecipeTraits[static_cast<size_t>(recipe)];
}

// The first recipe with such blocks, of activations or weights, or with such a rule. Only kTensor
// is of several.
constexpr Recipe recipe_with(Granularity granularity) {
  for (const RecipeTraits& row : kRecipeTraits)
    if (row.activations == granularity || row.weights == granularity) return row.recipe;
  return kDefaultRecipe;
}
constexpr Recipe recipe_with(ScaleRule rule) {
  for (const RecipeTraits& row : kRecipeTraits)
    if (row.scale_rule == rule) return row.recipe;
  return kDefaultRecipe;
}

// Delayed scaling: the quantizer is given its factor and records the amax.
constexpr bool uses_history(Recipe recipe) {
  return traits_of(recipe).scale_rule == ScaleRule::kHistory;
}
constexpr bool has_e8m0_scales(Recipe recipe) {
  return traits_of(recipe).scale_type == ScaleType::kE8M0;
}
// Every scale is a power of two, so that code times scale is exact in BF16 and FP32.
constexpr bool has_power_of_two_scales(Recipe recipe) {
  const ScaleRule rule = traits_of(recipe).scale_rule;
  return rule != ScaleRule::kHistory && rule != ScaleRule::kTe && rule != ScaleRule::kNvfp4;
}
// Four bits a value: E2M1, in the blocks and by the rules of nvfp4.h.
constexpr bool is_fp4(Recipe recipe) {
  return traits_of(recipe).scale_rule == ScaleRule::kNvfp4;
}
// A GPU without matrix units for it can rehearse it in BF16, by libtorch's kernels.
constexpr bool is_rehearsed_on_gpus(Recipe recipe) {
  return !is_fp4(recipe);
}

}  // namespace octavo::fp8
