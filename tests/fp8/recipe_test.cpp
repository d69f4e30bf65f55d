#include "fp8/recipe.h"
#include "fp8/numbers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

namespace octavo::fp8 {
namespace {

constexpr Format kE4 = Format::kE4M3, kE5 = Format::kE5M2;
constexpr FormatChoice kChoices[] = {FormatChoice::kHybrid, FormatChoice::kE4m3,
                                     FormatChoice::kE5m2};

TEST(Sides, FormatOfEveryRoleAndDirection) {
  struct Case {
    FormatChoice choice;
    Role role;
    Format row, column;
  };
  const Case cases[] = {
      {FormatChoice::kHybrid, Role::kInput, kE4, kE4},
      {FormatChoice::kHybrid, Role::kWeight, kE4, kE4},
      {FormatChoice::kHybrid, Role::kGradient, kE5, kE5},
      {FormatChoice::kE4m3, Role::kInput, kE4, kE4},
      {FormatChoice::kE4m3, Role::kWeight, kE4, kE4},
      {FormatChoice::kE4m3, Role::kGradient, kE4, kE4},
      {FormatChoice::kE5m2, Role::kInput, kE5, kE4},
      {FormatChoice::kE5m2, Role::kWeight, kE4, kE4},
      {FormatChoice::kE5m2, Role::kGradient, kE5, kE5},
  };
  for (const Recipe recipe : kRecipes) {
    for (const Case& c : cases) {
      EXPECT_EQ(side_of(recipe, c.choice, c.role, kRow).format, c.row);
      EXPECT_EQ(side_of(recipe, c.choice, c.role, kColumn).format, c.column);
    }
  }
}

TEST(Sides, NoGemmOfTwoE5M2) {
  for (const Recipe recipe : kRecipes) {
    for (const FormatChoice choice : kChoices) {
      const auto is_e5m2 = [&](Role role, Direction direction) {
        return side_of(recipe, choice, role, direction).format == kE5;
      };
      EXPECT_FALSE(is_e5m2(Role::kInput, kRow) && is_e5m2(Role::kWeight, kRow)) << "forward";
      EXPECT_FALSE(is_e5m2(Role::kGradient, kRow) && is_e5m2(Role::kWeight, kColumn))
          << "input gradient";
      EXPECT_FALSE(is_e5m2(Role::kGradient, kColumn) && is_e5m2(Role::kInput, kColumn))
          << "weight gradient";
    }
  }
}

TEST(Sides, GranularityOfEveryRecipe) {
  for (const Role role : {Role::kInput, Role::kWeight, Role::kGradient}) {
    for (const Direction direction : {kRow, kColumn}) {
      const auto granularity = [&](Recipe recipe) {
        return side_of(recipe, FormatChoice::kE4m3, role, direction).granularity;
      };
      EXPECT_EQ(granularity(Recipe::kDelayed), Granularity::kTensor);
      EXPECT_EQ(granularity(Recipe::kCurrent), Granularity::kTensor);
      EXPECT_EQ(granularity(Recipe::kRowwise), Granularity::kVector);
      EXPECT_EQ(granularity(Recipe::kMxfp8), Granularity::kBlock32);
      EXPECT_EQ(granularity(Recipe::kBlockwise),
                role == Role::kWeight ? Granularity::kSquare128 : Granularity::kBlock128);
    }
  }
}

// Only what Transformer Engine rotates and rounds at random, and nothing of other recipes.
TEST(Recipe, WhatNvfp4DoesToItsCopies) {
  Options options{.recipe = Recipe::kNvfp4, .format = FormatChoice::kE4m3};
  for (const Role role : {Role::kInput, Role::kWeight, Role::kGradient})
    for (const Direction direction : {kRow, kColumn}) {
      const Side side = side_of(options, role, direction);
      EXPECT_EQ(side.format, Format::kE2M1);
      EXPECT_EQ(side.granularity,
                role == Role::kWeight ? Granularity::kSquare16 : Granularity::kBlock16);
      EXPECT_EQ(is_rotated(options, role, direction),
                role != Role::kWeight && direction == kColumn);
      EXPECT_EQ(is_stochastic(options, role), role == Role::kGradient);
      Options plain = options;
      plain.hadamard = plain.stochastic_rounding = plain.weight_blocks = false;
      EXPECT_EQ(side_of(plain, role, direction).granularity, Granularity::kBlock16);
      EXPECT_FALSE(is_rotated(plain, role, direction) || is_stochastic(plain, role));
      for (const Recipe recipe : kRecipes) {
        const Options other{.recipe = recipe, .format = default_format(recipe)};
        EXPECT_EQ(side_of(other, role, direction), side_of(recipe, other.format, role, direction));
        EXPECT_FALSE(is_rotated(other, role, direction) || is_stochastic(other, role));
      }
    }
  EXPECT_EQ(format_name(options), "e2m1");
}

TEST(Sides, Properties) {
  EXPECT_TRUE(is_symmetric(Granularity::kTensor) && is_symmetric(Granularity::kSquare128));
  EXPECT_FALSE(is_symmetric(Granularity::kVector) || is_symmetric(Granularity::kBlock128) ||
               is_symmetric(Granularity::kBlock32));
  EXPECT_FALSE(has_power_of_two_scales(Recipe::kDelayed) ||
               has_power_of_two_scales(Recipe::kCurrent));
  EXPECT_TRUE(has_power_of_two_scales(Recipe::kRowwise) &&
              has_power_of_two_scales(Recipe::kBlockwise) &&
              has_power_of_two_scales(Recipe::kMxfp8));
}

// block_rows, block_columns, grid_rows, grid_columns
using Sizes = std::tuple<int64_t, int64_t, int64_t, int64_t>;
Sizes sizes(Granularity granularity, Direction direction, int64_t rows, int64_t columns) {
  const Grid grid = grid_of(granularity, direction, rows, columns);
  EXPECT_EQ(grid.count(), grid.grid_rows * grid.grid_columns);
  return {grid.block_rows, grid.block_columns, grid.grid_rows, grid.grid_columns};
}

TEST(Grids, OfRaggedMatrices) {
  for (const Direction direction : {kRow, kColumn}) {
    EXPECT_EQ(sizes(Granularity::kTensor, direction, 130, 257), Sizes(130, 257, 1, 1));
    EXPECT_EQ(sizes(Granularity::kSquare128, direction, 130, 257), Sizes(128, 128, 2, 3));
    EXPECT_EQ(sizes(Granularity::kSquare128, direction, 128, 256), Sizes(128, 128, 1, 2));
  }
  EXPECT_EQ(sizes(Granularity::kVector, kRow, 130, 257), Sizes(1, 257, 130, 1));
  EXPECT_EQ(sizes(Granularity::kVector, kColumn, 130, 257), Sizes(130, 1, 1, 257));
  EXPECT_EQ(sizes(Granularity::kBlock128, kRow, 130, 257), Sizes(1, 128, 130, 3));
  EXPECT_EQ(sizes(Granularity::kBlock128, kColumn, 130, 257), Sizes(128, 1, 2, 257));
  EXPECT_EQ(sizes(Granularity::kBlock32, kRow, 130, 257), Sizes(1, 32, 130, 9));
  EXPECT_EQ(sizes(Granularity::kBlock32, kColumn, 130, 257), Sizes(32, 1, 5, 257));
  EXPECT_EQ(sizes(Granularity::kBlock32, kRow, 1, 1), Sizes(1, 32, 1, 1));
  EXPECT_EQ(sizes(Granularity::kBlock32, kColumn, 64, 3), Sizes(32, 1, 2, 3));
}

TEST(Grids, OfNothing) {
  EXPECT_EQ(grid_of(Granularity::kTensor, kRow, 0, 5).count(), 1);
  for (const Granularity granularity : {Granularity::kVector, Granularity::kBlock128,
                                        Granularity::kBlock32, Granularity::kSquare128})
    EXPECT_EQ(grid_of(granularity, kRow, 0, 5).count(), 0);
}

void expect_scale(Recipe recipe, Format format, float amax, float encode, float decode) {
  const Scale scale = scale_from_amax(recipe, format, amax, false);
  EXPECT_EQ(scale.encode, encode) << "amax " << amax;
  EXPECT_EQ(scale.decode, decode) << "amax " << amax;
}

TEST(Scales, Current) {
  const Recipe r = Recipe::kCurrent;
  expect_scale(r, kE4, 448, 1, 1);
  expect_scale(r, kE4, 1, 448, 1.0f / 448);
  expect_scale(r, kE4, 3, 448.0f / 3, 1.0f / (448.0f / 3));
  expect_scale(r, kE4, 1e4f, 0.0448f, 1.0f / 0.0448f);
  expect_scale(r, kE5, 2, 28672, 1.0f / 28672);  // never 448
  expect_scale(r, kE4, 0, 1, 1);
  expect_scale(r, kE4, kInf, 1, 1);
  expect_scale(r, kE4, 1e-40f, kMost, 1 / kMost);  // 448 / 1e-40 is past float32
  EXPECT_EQ(scale_from_amax(r, kE4, 1, true).encode, 448) << "a NaN changes nothing";
}

TEST(Scales, Blockwise) {
  const Recipe r = Recipe::kBlockwise;
  expect_scale(r, kE4, 1, 256, 0x1p-8f);
  expect_scale(r, kE4, 448, 1, 1);
  expect_scale(r, kE4, std::nextafter(448.0f, kInf), 0.5f, 2);
  expect_scale(r, kE4, std::nextafter(448.0f, 0.0f), 1, 1);
  expect_scale(r, kE5, 1, 32768, 0x1p-15f);
  expect_scale(r, kE4, 0, 1, 1);
  expect_scale(r, kE4, kInf, 1, 1);
  expect_scale(r, kE4, 1e-40f, 0x1p127f, 0x1p-127f);
  expect_scale(r, kE4, kMost, 0x1p-120f, 0x1p120f);  // 448 / 2^128 = 1.75 2^-120
  EXPECT_EQ(scale_from_amax(r, kE4, 1, true).encode, 256) << "a NaN changes nothing";
}

TEST(Scales, Rowwise) {
  const Recipe r = Recipe::kRowwise;
  expect_scale(r, kE4, 1, 256, 0x1p-8f);
  expect_scale(r, kE4, 448, 1, 1);
  expect_scale(r, kE4, std::nextafter(448.0f, kInf), 0.5f, 2);
  expect_scale(r, kE5, 7, 8192, 0x1p-13f);
  // 448 / 1e-12 = 4.48e14 lies between 2^48 and 2^49; 57344 / 1e-12 = 5.7e16 above 2^55.
  for (const float small : {0.0f, 1e-40f, 1e-13f, 1e-12f}) {
    expect_scale(r, kE4, small, 0x1p48f, 0x1p-48f);
    expect_scale(r, kE5, small, 0x1p55f, 0x1p-55f);
  }
  expect_scale(r, kE4, kInf, 0, kInf);
  const Scale lost = scale_from_amax(r, kE4, 1, true);
  EXPECT_TRUE(std::isnan(lost.encode) && std::isnan(lost.decode));
}

TEST(Scales, Mxfp8) {
  const Recipe r = Recipe::kMxfp8;
  expect_scale(r, kE4, 448, 1, 1);
  expect_scale(r, kE4, std::nextafter(448.0f, kInf), 0.5f, 2);
  expect_scale(r, kE4, 1, 256, 0x1p-8f);  // 1 / 448, up
  expect_scale(r, kE5, 57344, 1, 1);
  expect_scale(r, kE5, 1, 32768, 0x1p-15f);
  expect_scale(r, kE4, 0, 0x1p127f, 0x1p-127f);
  expect_scale(r, kE4, 1e-40f, 0x1p127f, 0x1p-127f);
  expect_scale(r, kE4, kMost, 0x1p-120f, 0x1p120f);
  expect_scale(r, kE4, kInf, 0x1p-127f, 0x1p127f);
  const Scale lost = scale_from_amax(r, kE4, 1, true);
  EXPECT_TRUE(std::isnan(lost.encode) && std::isnan(lost.decode));
}

// The scale fits: no amax is pushed past the largest value by more than rounding takes back, and
// twice the scale would push it past.
TEST(Scales, AreTheLargestThatFit) {
  for (const Recipe recipe : {Recipe::kRowwise, Recipe::kBlockwise, Recipe::kMxfp8}) {
    for (const Format format : {kE4, kE5}) {
      for (float amax = 1.5e-11f; amax < 1e30f; amax *= 1.37f) {
        const double scaled =
            static_cast<double>(amax) * scale_from_amax(recipe, format, amax, false).encode;
        EXPECT_LE(scaled, max_value(format)) << amax;
        EXPECT_GT(2 * scaled, max_value(format)) << amax;
      }
    }
  }
}

}  // namespace
}  // namespace octavo::fp8
