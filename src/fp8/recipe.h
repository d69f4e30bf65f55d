#pragma once
// How a recipe cuts a matrix into blocks, which format a copy gets, and the scale of a block from
// its largest magnitude. Everything that quantizes follows what stands here; what differs between
// recipes without being arithmetic is in recipe_traits.h.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>

#include "fp8/formats.h"
#include "fp8/recipe_traits.h"

namespace octavo::fp8 {

using FormatChoice = config::Fp8Format;
using AmaxAlgo = config::Fp8AmaxAlgo;
using Update = config::Fp8Update;

struct Options {
  Recipe recipe = kDefaultRecipe;
  FormatChoice format = FormatChoice::kHybrid;  // never kAuto
  // Of delayed alone.
  int64_t margin = 0, interval = 1, history = 1024;
  AmaxAlgo algo = AmaxAlgo::kMax;
  Update update = Update::kPass;
  // Of nvfp4 alone: the Hadamard transform of what the weight gradient reads, gradients rounded
  // stochastically, weights in blocks of 16 x 16 (else 1 x 16).
  bool hadamard = true, stochastic_rounding = true, weight_blocks = true;
  bool operator==(const Options&) const = default;
};

// What fp8_format auto stands for.
constexpr FormatChoice default_format(Recipe recipe) {
  return traits_of(recipe).chooses_format ? FormatChoice::kHybrid : FormatChoice::kE4m3;
}

// What a matrix is to its linear layer, y[T,O] = x[T,I] w[O,I]^T.
enum class Role : uint8_t { kInput, kWeight, kGradient };
std::string_view name_of(Role role);  // "input", "weight", "gradient"

// A GEMM sums over the columns of a stored matrix, and reads its row copy, or over its rows, and
// reads its column copy. Blocks always lie along the sum.
//                   row copy            column copy
//   x[T,I]          forward             weight gradient
//   w[O,I]          forward             input gradient
//   dy[T,O]         input gradient      weight gradient
enum class Direction : uint8_t { kRow, kColumn };

struct Side {
  Format format = Format::kE4M3;
  Granularity granularity = Granularity::kTensor;
  bool operator==(const Side&) const = default;
};

Side side_of(Recipe recipe, FormatChoice format, Role role, Direction direction);
Side side_of(const Options& options, Role role, Direction direction);  // the format is no kAuto
// What nvfp4 does to a copy besides quantizing it, as Transformer Engine does.
bool is_rotated(const Options& options, Role role, Direction direction);
bool is_stochastic(const Options& options, Role role);
// What a run says of its formats: fp8_format's value, or e2m1.
std::string_view format_name(const Options& options);

// How the blocks lie on a [rows, columns] matrix. Scales are kept row-major, [grid_rows,
// grid_columns]; blocks at the edges may be smaller.
struct Grid {
  int64_t block_rows = 1, block_columns = 1, grid_rows = 1, grid_columns = 1;
  int64_t count() const { return grid_rows * grid_columns; }
  // The block that an element is in.
  int64_t block_of(int64_t row, int64_t column) const {
    return row / block_rows * grid_columns + column / block_columns;
  }
};
Grid grid_of(Granularity granularity, Direction direction, int64_t rows, int64_t columns);

// Values are multiplied by `encode` before they are rounded; codes are worth their value times
// `decode`.
struct Scale {
  float encode = 1, decode = 1;
};
constexpr Scale scale_from_factor(float factor) {
  return {factor, 1.0f / factor};
}
// The same from the factor that a copy keeps. 1 / decode is past float32 for the tiniest tensors.
inline Scale scale_from_decode(float decode) {
  return {std::min(1 / decode, std::numeric_limits<float>::max()), decode};
}
// The scale of a block from the largest magnitude of its numbers (see amax_of), for the recipes
// that take it from the block itself. `has_nan`: the block has a NaN.
//   kTe                 Transformer Engine: MAX / amax; 1 when amax is 0 or infinite
//   kTorchaoPowerOfTwo  torchao: MAX / max(amax, 1e-12), rounded down to a power of two; 0 when
//                       amax is infinite and NaN when there is one, so that the row becomes NaN
//   kTePowerOfTwo       Transformer Engine: as kTe, rounded down to a power of two
//   kE8m0Ceil           OCP and cuBLAS: decode is the smallest power of two at or above amax / MAX;
//                       NaN when there is one
Scale scale_from_amax(Recipe recipe, Format format, float amax, bool has_nan);

}  // namespace octavo::fp8
