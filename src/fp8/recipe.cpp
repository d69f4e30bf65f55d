#include "fp8/recipe.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace octavo::fp8 {
namespace {

constexpr float kTorchaoSmallestAmax = 1e-12f;

Format format_of(FormatChoice choice, Role role, Direction direction) {
  switch (choice) {
    case FormatChoice::kHybrid:
      return role == Role::kGradient ? Format::kE5M2 : Format::kE4M3;
    case FormatChoice::kE5m2:
      // There is no E5M2 x E5M2 GEMM: the weight gradient reads the gradient in E5M2, so it must
      // read the input in E4M3.
      if (role == Role::kWeight || (role == Role::kInput && direction == Direction::kColumn))
        return Format::kE4M3;
      return Format::kE5M2;
    case FormatChoice::kE4m3:
      return Format::kE4M3;
    case FormatChoice::kAuto:
      break;
  }
  OCTAVO_ASSERT(false && "the format is decided before it is asked for");
  return Format::kE4M3;
}

// Clears the mantissa: the power of two at or below a positive number. A subnormal becomes zero, as
// it does in Transformer Engine; MAX / amax is never that small.
float power_of_two_below(float value) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xFF800000u);
}

float transformer_engine_factor(Format format, float amax) {
  if (amax == 0 || !std::isfinite(amax)) return 1;
  const float factor = max_value(format) / amax;
  return std::isinf(factor) ? std::numeric_limits<float>::max() : factor;
}

Scale torchao_scale(Format format, float amax, bool has_nan) {
  if (has_nan) return scale_from_factor(std::numeric_limits<float>::quiet_NaN());
  return scale_from_factor(
      power_of_two_below(max_value(format) / std::max(amax, kTorchaoSmallestAmax)));
}

Scale e8m0_scale(Format format, float amax, bool has_nan) {
  const uint8_t code = has_nan ? kE8M0Nan : encode_e8m0_up(amax / max_value(format));
  const float decode = decode_e8m0(code);
  // 2^127 has no normal reciprocal; it is 2^-127, which 1 / decode gives as well.
  return {1.0f / decode, decode};
}

}  // namespace

std::string_view name_of(Role role) {
  switch (role) {
    case Role::kInput:
      return "input";
    case Role::kWeight:
      return "weight";
    case Role::kGradient:
      break;
  }
  return "gradient";
}

Side side_of(Recipe recipe, FormatChoice format, Role role, Direction direction) {
  const RecipeTraits& traits = traits_of(recipe);
  return {is_fp4(recipe) ? Format::kE2M1 : format_of(format, role, direction),
          role == Role::kWeight ? traits.weights : traits.activations};
}

Side side_of(const Options& options, Role role, Direction direction) {
  Side side = side_of(options.recipe, options.format, role, direction);
  if (is_fp4(options.recipe) && !options.weight_blocks)
    side.granularity = traits_of(options.recipe).activations;
  return side;
}

bool is_rotated(const Options& options, Role role, Direction direction) {
  return is_fp4(options.recipe) && options.hadamard && role != Role::kWeight &&
         direction == Direction::kColumn;
}

bool is_stochastic(const Options& options, Role role) {
  return is_fp4(options.recipe) && options.stochastic_rounding && role == Role::kGradient;
}

Grid grid_of(Granularity granularity, Direction direction, int64_t rows, int64_t columns) {
  int64_t along = 0;  // elements of a block in the direction of the sum; 0 = all
  switch (granularity) {
    case Granularity::kTensor:
      return {std::max<int64_t>(rows, 1), std::max<int64_t>(columns, 1), 1, 1};
    case Granularity::kSquare128:
      return {128, 128, (rows + 127) / 128, (columns + 127) / 128};
    case Granularity::kSquare16:
      return {16, 16, (rows + 15) / 16, (columns + 15) / 16};
    case Granularity::kVector:
      break;
    case Granularity::kBlock128:
      along = 128;
      break;
    case Granularity::kBlock32:
      along = 32;
      break;
    case Granularity::kBlock16:
      along = 16;
      break;
  }
  const int64_t length = direction == Direction::kRow ? columns : rows;
  const int64_t block = along > 0 ? along : std::max<int64_t>(length, 1);
  const int64_t blocks = (length + block - 1) / block;
  if (direction == Direction::kRow) return {1, block, rows, blocks};
  return {block, 1, blocks, columns};
}

Scale scale_from_amax(Recipe recipe, Format format, float amax, bool has_nan) {
  switch (traits_of(recipe).scale_rule) {
    case ScaleRule::kHistory:
    case ScaleRule::kNvfp4:
      break;
    case ScaleRule::kTe:
      return scale_from_factor(transformer_engine_factor(format, amax));
    case ScaleRule::kTorchaoPowerOfTwo:
      return torchao_scale(format, amax, has_nan);
    case ScaleRule::kTePowerOfTwo:
      return scale_from_factor(power_of_two_below(transformer_engine_factor(format, amax)));
    case ScaleRule::kE8m0Ceil:
      return e8m0_scale(format, amax, has_nan);
  }
  OCTAVO_ASSERT(false &&
                "delayed scales come from the history, those of nvfp4 from two magnitudes");
  return {};
}

}  // namespace octavo::fp8
