#pragma once
// Names that the tests of this module share.

#include <limits>

#include "fp8/recipe.h"

namespace octavo::fp8 {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kMost = std::numeric_limits<float>::max();
inline constexpr Format kFormats[] = {Format::kE4M3, Format::kE5M2};
inline constexpr Direction kRow = Direction::kRow, kColumn = Direction::kColumn;

}  // namespace octavo::fp8
