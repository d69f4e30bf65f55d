#include "fp8/quantize.h"
#include "fp8/numbers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"

namespace octavo::fp8 {
namespace {

using Codes = std::vector<uint8_t>;
using Floats = std::vector<float>;

Quantization quantized(Recipe recipe, const Floats& values, int64_t rows,
                       Direction direction = kRow, Role role = Role::kInput,
                       FormatChoice choice = FormatChoice::kE4m3, float given = 1) {
  const Matrix matrix{values, rows, static_cast<int64_t>(values.size()) / rows};
  return quantize(recipe, side_of(recipe, choice, role, direction), direction, matrix, given);
}

Floats encodes(const Quantization& q) {
  Floats result;
  for (const Scale& scale : q.scales) result.push_back(scale.encode);
  return result;
}

// Numbers of a few magnitudes; the row or column decides which.
Floats numbers(int64_t rows, int64_t columns) {
  Floats values;
  for (int64_t i = 0; i < rows * columns; ++i) {
    const auto draw = philox(3, 1, static_cast<uint64_t>(i));
    const float unit = static_cast<float>(draw[0]) * 0x1p-31f - 1;
    values.push_back(std::ldexp(unit, static_cast<int>((i / columns) % 7 + (i % columns) % 5) - 5));
  }
  return values;
}

TEST(Quantize, Current) {
  // 448 / 4 = 112: 112, -224, 336, -448. 336 is the middle of 320 and 352; 320 is even.
  const auto q = quantized(Recipe::kCurrent, {1, -2, 3, -4}, 2);
  EXPECT_EQ(q.codes, (Codes{0x6E, 0xF6, 0x7A, 0xFE}));
  EXPECT_EQ(encodes(q), (Floats{112}));
  EXPECT_EQ(q.scales[0].decode, 1.0f / 112);
  EXPECT_EQ(q.amax.value, 4);
  EXPECT_FALSE(q.amax.has_nan);
  const float inverse = 1.0f / 112;
  EXPECT_EQ(dequantize(q, 2),
            (Floats{112 * inverse, -224 * inverse, 320 * inverse, -448 * inverse}));
}

TEST(Quantize, CurrentInE5M2) {
  // 57344 / 4 = 14336 = 1.75 2^13, then 1.75 2^14, 1.3125 2^15 (down to 1.25) and 1.75 2^15.
  const auto q =
      quantized(Recipe::kCurrent, {1, -2, 3, -4}, 1, kRow, Role::kGradient, FormatChoice::kHybrid);
  EXPECT_EQ(q.codes, (Codes{0x73, 0xF7, 0x79, 0xFB}));
  EXPECT_EQ(encodes(q), (Floats{14336}));
}

TEST(Quantize, DelayedTakesTheGivenFactor) {
  // 2, -3, 600 (too large) and 2^-11 (too small).
  const auto q = quantized(Recipe::kDelayed, {1, -1.5f, 300, 0x1p-12f}, 1, kRow, Role::kInput,
                           FormatChoice::kHybrid, 2);
  EXPECT_EQ(q.codes, (Codes{0x40, 0xC4, 0x7E, 0x00}));
  EXPECT_EQ(encodes(q), (Floats{2}));
  EXPECT_EQ(q.amax.value, 300);
  EXPECT_EQ(q.incidents, (Incidents{.saturated = 1, .underflowed = 1}));
  EXPECT_EQ(dequantize(q, 4), (Floats{1, -1.5f, 224, 0}));
}

TEST(Quantize, RowwiseHasAScalePerRowOrColumn) {
  const Floats values = {1, 2, 100, 0, -7, 0};
  // 448 / 100 = 4.48 -> 4; 448 / 7 = 64. Scaled: 4, 8, 400 (to 384 or 416: even is 384); 0, -448,
  // 0.
  const auto row = quantized(Recipe::kRowwise, values, 2);
  EXPECT_EQ(encodes(row), (Floats{4, 64}));
  EXPECT_EQ(row.codes, (Codes{0x48, 0x50, 0x7C, 0x00, 0xFE, 0x00}));
  EXPECT_EQ(dequantize(row, 3), (Floats{1, 2, 96, 0, -7, 0}));
  // Columns {1, 0}, {2, -7}, {100, 0}: 256, 64, 4.
  const auto column = quantized(Recipe::kRowwise, values, 2, kColumn);
  EXPECT_EQ(encodes(column), (Floats{256, 64, 4}));
  EXPECT_EQ(column.codes, (Codes{0x78, 0x70, 0x7C, 0x00, 0xFE, 0x00}));
}

TEST(Quantize, BlockwiseInPiecesOf128) {
  Floats values(2 * 130, 1);
  values[0] = -448;
  values[129] = 3.5f;  // the second block of row 0: two elements
  const auto row = quantized(Recipe::kBlockwise, values, 2);
  EXPECT_EQ(encodes(row), (Floats{1, 128, 256, 256}));
  EXPECT_EQ(row.codes[0], 0xFE);
  EXPECT_EQ(row.codes[1], 0x38);    // 1
  EXPECT_EQ(row.codes[128], 0x70);  // 128
  EXPECT_EQ(row.codes[129], 0x7E);  // 448
  EXPECT_EQ(row.codes[130], 0x78);  // 256
  EXPECT_EQ(dequantize(row, 130), values);
}

TEST(Quantize, BlockwiseWeightsInSquares) {
  Floats values(130 * 130, 1);
  values[127 * 130 + 127] = 448;  // the end of the first square
  values[129] = 2;                // row 0, second square
  values[128 * 130] = 4;          // third
  for (const Direction direction : {kRow, kColumn}) {
    const auto q = quantized(Recipe::kBlockwise, values, 130, direction, Role::kWeight);
    EXPECT_EQ(encodes(q), (Floats{1, 128, 64, 256}));
    EXPECT_EQ(q.codes[0], 0x38);                // 1
    EXPECT_EQ(q.codes[128], 0x70);              // 128
    EXPECT_EQ(q.codes[128 * 130 + 1], 0x68);    // 64
    EXPECT_EQ(q.codes[129 * 130 + 129], 0x78);  // 256
    EXPECT_EQ(dequantize(q, 130), values);
  }
}

TEST(Quantize, Mxfp8InPiecesOf32) {
  Floats values(33, 0.5f);
  values[3] = 450;  // over 448: the scale goes up to 2
  values[32] = 0;
  const auto q = quantized(Recipe::kMxfp8, values, 1);
  EXPECT_EQ(encodes(q), (Floats{0.5f, 0x1p127f}));
  EXPECT_EQ(q.scales[0].decode, 2);
  EXPECT_EQ(q.scales[1].decode, 0x1p-127f);
  EXPECT_EQ(q.codes[0], 0x28);  // 0.25
  EXPECT_EQ(q.codes[3], 0x76);  // 225 -> 224
  EXPECT_EQ(q.codes[32], 0x00);
  EXPECT_EQ(dequantize(q, 33)[3], 448);
  // One column of 33: the same blocks.
  const auto column = quantized(Recipe::kMxfp8, values, 33, kColumn);
  EXPECT_EQ(column.codes, q.codes);
  EXPECT_EQ(encodes(column), encodes(q));
}

TEST(Quantize, ColumnCopyIsTheRowCopyOfTheTranspose) {
  constexpr int64_t kRows = 130, kColumns = 70;
  const Floats values = numbers(kRows, kColumns);
  Floats turned(values.size());
  for (size_t r = 0; r < kRows; ++r)
    for (size_t c = 0; c < kColumns; ++c) turned[c * kRows + r] = values[r * kColumns + c];
  for (const Recipe recipe : kRecipes) {
    for (const Role role : {Role::kInput, Role::kWeight}) {
      const auto column = quantized(recipe, values, kRows, kColumn, role);
      const auto row = quantized(recipe, turned, kColumns, kRow, role);
      ASSERT_EQ(column.grid.grid_rows, row.grid.grid_columns);
      ASSERT_EQ(column.grid.grid_columns, row.grid.grid_rows);
      for (size_t r = 0; r < kRows; ++r)
        for (size_t c = 0; c < kColumns; ++c)
          ASSERT_EQ(column.codes[r * kColumns + c], row.codes[c * kRows + r]);
      const auto height = static_cast<size_t>(column.grid.grid_rows);
      const auto width = static_cast<size_t>(column.grid.grid_columns);
      for (size_t r = 0; r < height; ++r)
        for (size_t c = 0; c < width; ++c)
          ASSERT_EQ(column.scales[r * width + c].encode, row.scales[c * height + r].encode);
    }
  }
}

// Half a step between codes: 2^-4 of the value in E4M3, 2^-3 in E5M2, and half the smallest
// subnormal where values are small. A hair more for the rounding of the scale.
TEST(Quantize, ErrorIsWithinHalfAStep) {
  constexpr int64_t kRows = 131, kColumns = 140;
  const Floats values = numbers(kRows, kColumns);
  for (const Recipe recipe : kRecipes) {
    for (const Role role : {Role::kInput, Role::kWeight, Role::kGradient}) {
      for (const Direction direction : {kRow, kColumn}) {
        const auto q = quantized(recipe, values, kRows, direction, role, FormatChoice::kHybrid, 10);
        const auto back = dequantize(q, kColumns);
        const bool e4m3 = q.side.format == Format::kE4M3;
        for (size_t i = 0; i < values.size(); ++i) {
          const auto row = static_cast<int64_t>(i) / kColumns / q.grid.block_rows;
          const auto column = static_cast<int64_t>(i) % kColumns / q.grid.block_columns;
          const auto block = static_cast<size_t>(row * q.grid.grid_columns + column);
          const double half_smallest = (e4m3 ? 0x1p-10 : 0x1p-17) * q.scales[block].decode;
          const double bound = std::fabs(values[i]) * (e4m3 ? 0x1p-4 : 0x1p-3) + half_smallest;
          ASSERT_LE(std::fabs(static_cast<double>(values[i]) - back[i]), bound * (1 + 1e-6));
        }
        EXPECT_EQ(q.incidents.saturated, 0);
      }
    }
  }
}

TEST(Quantize, ZerosKeepTheirSign) {
  for (const Recipe recipe : kRecipes) {
    const auto q = quantized(recipe, {0, -0.0f, 0, 0}, 2);
    EXPECT_EQ(q.codes, (Codes{0x00, 0x80, 0x00, 0x00}));
    EXPECT_EQ(q.amax.value, 0);
    EXPECT_EQ(q.incidents, Incidents{});
    for (const float value : dequantize(q, 2)) EXPECT_EQ(value, 0);
  }
}

// Where the scale does not follow the infinity, it becomes the largest value.
TEST(Quantize, Infinity) {
  const Floats values = {1, -kInf, 2, 3};
  for (const Recipe recipe : {Recipe::kDelayed, Recipe::kCurrent, Recipe::kBlockwise}) {
    const auto q = quantized(recipe, values, 1);
    EXPECT_EQ(q.codes, (Codes{0x38, 0xFE, 0x40, 0x44}));  // the factor is 1
    EXPECT_EQ(q.amax.value, kInf);
    EXPECT_EQ(q.incidents, Incidents{.inf = 1});
  }
  // 2^127 swallows the rest.
  const auto mx = quantized(Recipe::kMxfp8, values, 1);
  EXPECT_EQ(mx.codes, (Codes{0x00, 0xFE, 0x00, 0x00}));
  EXPECT_EQ(mx.incidents, (Incidents{.inf = 1, .underflowed = 3}));
}

TEST(Quantize, InfinityLosesItsRow) {
  const auto q = quantized(Recipe::kRowwise, {1, -kInf, 448, 1}, 2);
  EXPECT_EQ(encodes(q), (Floats{0, 1}));
  EXPECT_EQ(q.codes[0], 0x00);
  EXPECT_EQ(q.codes[1] & 0x7F, 0x7F);
  const auto back = dequantize(q, 2);
  EXPECT_TRUE(std::isnan(back[0]) && std::isnan(back[1]));
  EXPECT_EQ(back[2], 448);
  EXPECT_EQ(back[3], 1);
  EXPECT_EQ(q.incidents, Incidents{.inf = 1}) << "judged on the value: it was no NaN";
}

TEST(Quantize, NanIsOneElementOrItsBlock) {
  const Floats values = {1, kNan, 448, -1};
  for (const Recipe recipe : {Recipe::kDelayed, Recipe::kCurrent, Recipe::kBlockwise}) {
    const auto q = quantized(recipe, values, 1);
    EXPECT_EQ(q.codes, (Codes{0x38, 0x7F, 0x7E, 0xB8}));
    EXPECT_EQ(q.amax.value, 448);
    EXPECT_TRUE(q.amax.has_nan);
    EXPECT_EQ(q.incidents, Incidents{.nan = 1});
  }
  for (const Recipe recipe : {Recipe::kRowwise, Recipe::kMxfp8}) {
    const auto q = quantized(recipe, values, 2);
    EXPECT_EQ(q.codes[0] & 0x7F, 0x7F);
    EXPECT_EQ(q.codes[1] & 0x7F, 0x7F);
    EXPECT_EQ(q.codes[2], 0x7E);  // the other row is untouched
    EXPECT_EQ(q.codes[3], 0xB8);
    EXPECT_EQ(q.incidents, Incidents{.nan = 1}) << "the value beside it was no NaN";
  }
}

// What float32 itself loses in the multiplication is lost all the same.
TEST(Quantize, IncidentsBeyondFloat32) {
  const auto large = quantized(Recipe::kDelayed, {1e38f, -1, 0}, 1, kRow, Role::kInput,
                               FormatChoice::kHybrid, 1000);
  EXPECT_EQ(large.codes, (Codes{0x7E, 0xFE, 0x00}));
  EXPECT_EQ(large.incidents, Incidents{.saturated = 2});
  const auto small = quantized(Recipe::kCurrent, {3e38f, 1e-10f, -1e-30f, 0}, 1);
  EXPECT_EQ(small.codes, (Codes{0x7E, 0x00, 0x80, 0x00}));
  EXPECT_EQ(small.incidents, Incidents{.underflowed = 2});
}

}  // namespace
}  // namespace octavo::fp8
