// Where each code and scale lies for cuBLASLt, by the formulas of its documentation.

#include "engine/aten/fp8_layout.h"

#include <gtest/gtest.h>

#include "engine/aten/aten.h"
#include "engine/fp8_matrices.h"

namespace octavo::engine {
namespace {

using aten::GemmRules;
using aten::rules_of;
using fp8::Direction;
using fp8::Granularity;
using fp8::Recipe;

aten::PlainFp8 made_of(const at::Tensor& x, Recipe recipe, fp8::Role role, Direction direction) {
  return aten::quantize_plain(
      x, recipe, direction, order_of(sides_of(recipe, fp8::FormatChoice::kE4m3, role), direction));
}

TEST(Fp8Layout, SwizzlesAsDocumented) {
  for (const auto& [rows, blocks] : {std::pair<int64_t, int64_t>{1, 1}, {128, 4}, {272, 7}}) {
    const at::Tensor codes = at::randint(1, 255, {rows, blocks}).to(at::kByte),
                     found = aten::swizzled(codes);
    const int64_t columns = (blocks + 3) / 4, all = (rows + 127) / 128 * columns * 512;
    ASSERT_EQ(found.numel(), all);
    at::Tensor rest = found.clone();
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < blocks; ++j) {
        const int64_t at =
            ((i / 128) * columns + j / 4) * 512 + (i % 32) * 16 + ((i % 128) / 32) * 4 + j % 4;
        ASSERT_EQ(found.const_data_ptr<uint8_t>()[at],
                  codes.const_data_ptr<uint8_t>()[i * blocks + j]);
        rest.mutable_data_ptr<uint8_t>()[at] = 0;
      }
    EXPECT_EQ(rest.count_nonzero().item<int64_t>(), 0) << "padding is zero";
  }
}

TEST(Fp8Layout, OneScaleIsTransposedOnlyWhereItMustBe) {
  const at::Tensor x = at::randn({48, 80}).to(at::kBFloat16);
  for (const int capability : {89, 90, 100, 120}) {
    const auto rules = rules_of(capability);
    for (const Direction direction : kDirections) {
      const auto made = made_of(x, Recipe::kCurrent, fp8::Role::kInput, direction);
      const Fp8Copy copy = aten::lay_out(made, Granularity::kTensor, direction, rules);
      const bool turned = direction == Direction::kColumn && capability != 100;
      EXPECT_TRUE(same_bits(copy.codes, turned ? made.codes.t().contiguous() : made.codes));
      EXPECT_TRUE(same_bits(copy.scales, made.decode.flatten()));
      EXPECT_EQ(copy.codes.is_same(made.codes), !turned) << "no copy without need";
    }
  }
}

TEST(Fp8Layout, BlocksOf128ComeBlockByBlockInFours) {
  const at::Tensor x = at::randn({37, 640}).to(at::kBFloat16);
  const auto row = made_of(x, Recipe::kBlockwise, fp8::Role::kInput, Direction::kRow);
  const Fp8Copy made = aten::lay_out(row, Granularity::kBlock128, Direction::kRow, rules_of(90));
  EXPECT_EQ(made.codes.sizes(), (at::IntArrayRef{40, 640}));
  EXPECT_EQ(made.scales.sizes(), (at::IntArrayRef{5, 40}));
  EXPECT_TRUE(same_bits(made.codes.narrow(0, 0, 37), row.codes));
  EXPECT_TRUE(same_bits(made.scales.narrow(1, 0, 37), row.decode.t()));
  EXPECT_EQ(made.codes.narrow(0, 37, 3).count_nonzero().item<int64_t>(), 0);
  EXPECT_EQ(made.scales.narrow(1, 37, 3).count_nonzero().item<int64_t>(), 0);
  const auto column = made_of(x, Recipe::kBlockwise, fp8::Role::kInput, Direction::kColumn);
  const Fp8Copy turned =
      aten::lay_out(column, Granularity::kBlock128, Direction::kColumn, rules_of(90));
  EXPECT_TRUE(same_bits(turned.codes, column.codes.t()));
  EXPECT_TRUE(same_bits(turned.scales, column.decode));
}

TEST(Fp8Layout, SquaresArePaddedAlongTheSum) {
  const at::Tensor w = at::randn({384, 640}).to(at::kBFloat16);
  const auto made = made_of(w, Recipe::kBlockwise, fp8::Role::kWeight, Direction::kRow);
  const auto rules = rules_of(90);
  const Fp8Copy row = aten::lay_out(made, Granularity::kSquare128, Direction::kRow, rules),
                column = aten::lay_out(made, Granularity::kSquare128, Direction::kColumn, rules);
  EXPECT_EQ(row.scales.sizes(), (at::IntArrayRef{3, 8}));
  EXPECT_TRUE(same_bits(row.scales.narrow(1, 0, 5), made.decode));
  EXPECT_EQ(column.scales.sizes(), (at::IntArrayRef{5, 4}));
  EXPECT_TRUE(same_bits(column.scales.narrow(1, 0, 3), made.decode.t()));
  EXPECT_TRUE(same_bits(column.codes, made.codes.t()));
}

// Its quantizer is the rehearsal's, its copies are laid out; statistics are of the same codes.
TEST(ScaledMm, MeasuresWhatTheRehearsalMeasures) {
  const auto rehearsal = aten::make_rehearsal();
  for (const int capability : {90, 100}) {
    const auto op = aten::make_scaled_mm(capability);
    for (const Recipe recipe : kRecipes) {
      if (!fp8::traits_of(recipe).libtorch.has(capability)) continue;
      const at::Tensor x = contents()[5].make({48, 129});
      const Sides sides = sides_of(recipe, fp8::FormatChoice::kE4m3, fp8::Role::kInput);
      for (const Direction direction : kDirections) {
        const auto measured = [&](Fp8Linear& who) {
          return who.measure(x,
                             who.quantize(x, recipe, order_of(sides, Direction::kRow),
                                          order_of(sides, Direction::kColumn, true)),
                             direction);
        };
        const fp8::TensorHealth found = measured(*op), wanted = measured(*rehearsal);
        EXPECT_EQ(found.incidents, wanted.incidents);
        EXPECT_EQ(found.factor, wanted.factor);
        EXPECT_EQ(found.amax, wanted.amax);
        EXPECT_EQ(found.noise, wanted.noise);
        EXPECT_GT(found.signal, 0);
      }
    }
  }
}

TEST(ScaledMm, RefusesWhatTheGpuHasNot) {
  const at::Tensor x = at::randn({128, 128}).to(at::kBFloat16);
  const auto quantize = [&](int capability, Recipe recipe) {
    const Sides sides = sides_of(recipe, fp8::FormatChoice::kE4m3, fp8::Role::kInput);
    aten::make_scaled_mm(capability)
        ->quantize(x, recipe, order_of(sides, Direction::kRow),
                   order_of(sides, Direction::kColumn));
  };
  EXPECT_THROW(quantize(100, Recipe::kBlockwise), Error);
  EXPECT_THROW(quantize(90, Recipe::kMxfp8), Error);
  EXPECT_THROW(quantize(120, Recipe::kMxfp8), Error);
  EXPECT_NO_THROW(quantize(90, Recipe::kBlockwise));
  EXPECT_NO_THROW(quantize(100, Recipe::kMxfp8));
}

}  // namespace
}  // namespace octavo::engine
