// Codes, scales and values of every quantizer are those of fp8::quantize, bit for bit.

#include <bit>
#include <cmath>

#include "engine/cpu/cpu.h"
#include "engine/cpu/fp8_kernels.h"
#include "engine/fp8_matrices.h"
#include "engine/instruction_sets.h"
#include "fp8/scaling.h"

namespace octavo::engine {
namespace {

using fp8::Direction;
using fp8::Recipe;

using Fp8Quantize = Fp8Linear;  // its GEMMs are tested in fp8_linear_test.cpp
OCTAVO_OP_TESTS(Fp8Quantize);

struct ExpectedCopies {
  Plain row, column;
};
ExpectedCopies wanted_of(const at::Tensor& x, const Sides& sides, float factor = kFactor) {
  return {plain(x, sides, Direction::kRow, factor), plain(x, sides, Direction::kColumn, factor)};
}

// As a layer orders: an input (both, the column copy for later), a gradient or a weight (both), a
// gradient whose layer needs no input gradient (columns), an input in evaluation (rows).
void expect_all_orders(Fp8Linear& op, const at::Tensor& x, const Sides& sides,
                       const ExpectedCopies& wanted, float factor = kFactor) {
  const int64_t columns = x.size(1);
  const QuantizeSpec row = order_of(sides, Direction::kRow, false, factor),
                     column = order_of(sides, Direction::kColumn, false, factor),
                     kept = order_of(sides, Direction::kColumn, true, factor);
  const Fp8Matrix input = op.quantize(x, sides.recipe, row, kept);
  EXPECT_TRUE(holds(input.row, wanted.row)) << "row of input";
  EXPECT_TRUE(holds(input.column, wanted.column)) << "column of input";
  EXPECT_TRUE(input.column.codes.defined() && !input.column.values.defined());
  const Fp8Matrix both = op.quantize(x, sides.recipe, row, column);
  EXPECT_TRUE(holds(both.row, wanted.row)) << "row of both";
  EXPECT_TRUE(holds(both.column, wanted.column)) << "column of both";
  const Fp8Matrix columns_only =
      op.quantize(x, sides.recipe, no_order(sides, Direction::kRow), column);
  EXPECT_TRUE(holds(columns_only.column, wanted.column)) << "column only";
  EXPECT_FALSE(columns_only.row.defined());
  const Fp8Matrix rows_only =
      op.quantize(x, sides.recipe, row, no_order(sides, Direction::kColumn));
  EXPECT_TRUE(holds(rows_only.row, wanted.row)) << "row only";
  EXPECT_FALSE(rows_only.column.defined());
  for (const Fp8Matrix* m : {&input, &both, &columns_only, &rows_only})
    EXPECT_TRUE(m->rows == x.size(0) && m->columns == columns && m->row_side == sides.row &&
                m->column_side == sides.column);
}

// Instruction sets are of our own kernels.
template <class Body>
void with_every_kernel(bool by_library, const Body& body) {
  if (by_library)
    body();
  else
    for_each_instruction_set(body);
}

TEST_P(Fp8QuantizeValues, QuantizesAsThePlainLoops) {
  for (size_t c = 0; c < contents().size(); ++c)
    for (size_t i = 0; i < std::size(kFp8Extents); ++i) {
      const Extent& e = kFp8Extents[i];
      if (e.rows * e.width > 10'000 && (c + i) % 3 != 0)
        continue;  // one large one for each content
      const at::Tensor x = contents()[c].make(e);
      for (const Sides& sides : all_sides()) {
        SCOPED_TRACE(str(contents()[c].name, ", ", text_of(e), ", ", text_of(sides)));
        const ExpectedCopies wanted = wanted_of(x, sides);
        with_every_kernel(by_library, [&] { expect_all_orders(*op, x, sides, wanted); });
        if (testing::Test::HasFailure()) return;  // one is enough to read
      }
    }
}

// Every value as the largest of a block, and among others.
TEST_P(Fp8QuantizeValues, QuantizesEveryBf16Value) {
  for (const Extent& e : {Extent{65536, 1}, Extent{256, 256}})
    for (const bool shuffled : {false, true}) {
      if (shuffled && e.width == 1) continue;
      const at::Tensor x = every_bf16(e, shuffled);
      for (const Sides& sides : all_sides()) {
        SCOPED_TRACE(str(text_of(e), shuffled ? ", shuffled, " : ", ", text_of(sides)));
        const ExpectedCopies wanted = wanted_of(x, sides);
        with_every_kernel(by_library, [&] { expect_all_orders(*op, x, sides, wanted); });
        if (testing::Test::HasFailure()) return;
      }
    }
}

TEST_P(Fp8QuantizeValues, QuantizesEveryBf16ValueByManyFactors) {
  const at::Tensor x = every_bf16({256, 256}, false);
  constexpr float kFactors[] = {1,        0.1f,   448 / 3.7f, 57344,   0x1p20f,
                                0x1p-20f, 1e-38f, 1e-40f,     3.4e38f, 0x1p127f};
  for (const auto choice : kFormatChoices) {
    const Sides sides = sides_of(kByFactor, choice, fp8::Role::kInput);
    for (const float factor : kFactors) {
      SCOPED_TRACE(str(text_of(sides), ", factor ", factor));
      const ExpectedCopies wanted = wanted_of(x, sides, factor);
      with_every_kernel(by_library, [&] { expect_all_orders(*op, x, sides, wanted, factor); });
    }
  }
}

// Row copies of blocks are never kept as codes by the rehearsal; its kernel makes them all the
// same.
TEST(Fp8Kernels, CodesAndValuesAtOnceInBothDirections) {
  for (const Content& content : contents())
    for (const Sides& sides : all_sides()) {
      if (!fp8::has_power_of_two_scales(sides.recipe)) continue;
      const Extent e{130, 257};
      const at::Tensor x = content.make(e);
      for (const Direction direction : kDirections) {
        SCOPED_TRACE(str(content.name, ", ", text_of(sides), ", ",
                         direction == Direction::kRow ? "rows" : "columns"));
        const Plain wanted = plain(x, sides, direction);
        for_each_instruction_set([&] {
          Fp8Copy copy{at::empty({e.rows, e.width}, at::kByte), at::empty({wanted.grid.count()}),
                       at::empty({e.rows, e.width}, at::kBFloat16)};
          cpu::quantize_blocks({bits_of(x), e.rows, e.width}, sides.recipe, direction,
                               {sides.of(direction), copy.codes.mutable_data_ptr<uint8_t>(),
                                static_cast<uint16_t*>(copy.values.mutable_data_ptr())},
                               copy.scales.mutable_data_ptr<float>());
          EXPECT_TRUE(holds(copy, wanted));
        });
      }
    }
}

// All codes of both formats back to BF16, on rows that end inside a vector.
TEST(Fp8Kernels, DecodesEveryCode) {
  constexpr int64_t kRows = 3, kColumns = 261;
  std::vector<uint8_t> codes(static_cast<size_t>(kRows * kColumns));
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
  constexpr float kScales[] = {1, 0x1p-20f, 0x1p30f};
  for (const auto format : {fp8::Format::kE4M3, fp8::Format::kE5M2})
    for (const Direction direction : kDirections) {
      const auto grid = fp8::grid_of(fp8::Granularity::kBlock32, direction, kRows, kColumns);
      std::vector<float> decode(static_cast<size_t>(grid.count()));
      for (size_t i = 0; i < decode.size(); ++i) decode[i] = kScales[i % 3];
      for_each_instruction_set([&] {
        for (const bool scaled : {false, true}) {
          std::vector<uint16_t> found(codes.size());
          cpu::decode_codes({codes.data(), kRows, kColumns, format}, grid,
                            scaled ? decode.data() : nullptr, found.data());
          for (size_t i = 0; i < codes.size(); ++i) {
            const size_t block = block_of(grid, i, kColumns);
            const float value = std::bit_cast<float>(uint32_t{found[i]} << 16);
            ASSERT_TRUE(
                same_number(value, fp8::decode(format, codes[i]) * (scaled ? decode[block] : 1.0f)))
                << "code " << int{codes[i]};
          }
        }
      });
    }
}

// In the order in which a GEMM reads them: what decode_codes() gives, elsewhere.
TEST(Fp8Kernels, DecodesPairsOfRows) {
  constexpr int64_t kRows = 64, kColumns = 192;
  std::vector<uint8_t> codes(static_cast<size_t>(kRows * kColumns));
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i * 7);
  const cpu::PairedLayout layout{.row_step = 32 * 64, .column_step = kRows * 64};
  for (const auto format : {fp8::Format::kE4M3, fp8::Format::kE5M2})
    for (const auto granularity : {fp8::Granularity::kBlock32, fp8::Granularity::kVector}) {
      const auto grid = fp8::grid_of(granularity, Direction::kColumn, kRows, kColumns);
      std::vector<float> factors(static_cast<size_t>(grid.count()));
      for (size_t i = 0; i < factors.size(); ++i)
        factors[i] = std::ldexp(1.0f, static_cast<int>(i % 40) - 20);
      for_each_instruction_set([&] {
        for (const bool scaled : {false, true}) {
          const float* decode = scaled ? factors.data() : nullptr;
          ASSERT_TRUE(cpu::can_decode_pairs(grid, decode));
          std::vector<uint16_t> plain(codes.size()), paired(codes.size());
          const cpu::Fp8Codes from{codes.data(), kRows, kColumns, format};
          cpu::decode_codes(from, grid, decode, plain.data());
          cpu::decode_pairs(from, grid, decode, layout, paired.data());
          for (int64_t r = 0; r < kRows; ++r)
            for (int64_t c = 0; c < kColumns; ++c)
              ASSERT_EQ(paired[static_cast<size_t>(r / 32 * layout.row_step +
                                                   c / 64 * layout.column_step + r % 32 / 2 * 128 +
                                                   c % 64 * 2 + r % 2)],
                        plain[static_cast<size_t>(r * kColumns + c)])
                  << r << ", " << c;
        }
      });
    }
}

TEST_P(Fp8QuantizeTest, KeepsOneByteAnElement) {
  const at::Tensor x = contents().front().make({256, 96});
  for (const Sides& sides : all_sides()) {
    SCOPED_TRACE(text_of(sides));
    const Fp8Matrix made = op->quantize(x, sides.recipe, no_order(sides, Direction::kRow),
                                        order_of(sides, Direction::kColumn, true));
    ASSERT_TRUE(made.column.codes.defined());
    EXPECT_EQ(made.column.codes.nbytes(), 256u * 96u);
    EXPECT_FALSE(made.column.values.defined());
    EXPECT_EQ(bytes_of(made),
              static_cast<int64_t>(made.column.codes.nbytes() + made.column.scales.nbytes()));
  }
}

TEST(Fp8Rehearsal, KeepsMxfp8ScalesAsE8M0) {
  const at::Tensor x = contents().front().make({130, 257});
  const auto op = cpu::make_rehearsal(cpu::GemmOperands::kFp32);
  for (const auto recipe : kRecipes) {
    const Sides sides = sides_of(recipe, fp8::FormatChoice::kE4m3, fp8::Role::kInput);
    const Fp8Matrix made = op->quantize(x, recipe, order_of(sides, Direction::kRow),
                                        order_of(sides, Direction::kColumn, true));
    EXPECT_EQ(made.column.scales.scalar_type(),
              fp8::has_e8m0_scales(recipe) ? at::kByte : at::kFloat);
  }
}

TEST_P(Fp8QuantizeTest, QuantizesTheSameWithAnyNumberOfThreads) {
  const at::Tensor x = contents()[5].make({130, 257});
  for (const Sides& sides : all_sides()) {
    SCOPED_TRACE(text_of(sides));
    expect_independent_of_threads([&] {
      const Fp8Matrix made = op->quantize(x, sides.recipe, order_of(sides, Direction::kRow),
                                          order_of(sides, Direction::kColumn, true));
      std::vector<at::Tensor> result = {made.row.scales, made.column.scales, made.column.codes};
      if (made.row.values.defined()) result.push_back(made.row.values);
      if (made.row.codes.defined()) result.push_back(made.row.codes);
      return result;
    });
  }
}

TEST_P(Fp8QuantizeTest, DelayedRaisesTheSlotItIsGiven) {
  const at::Tensor x = sprinkled({33, 129}, 1, 5000, {-7.5f}),
                   with_nan = sprinkled({33, 129}, 1, 2000, {NAN, -9.0f}),
                   with_inf = sprinkled({33, 129}, 1, 2000, {-INFINITY, 3.0f});
  const Sides sides = sides_of(kByFactor, fp8::FormatChoice::kHybrid, fp8::Role::kInput);
  const auto slot_after = [&](const at::Tensor& tensor, float before, Direction direction) {
    QuantizeSpec row = order_of(sides, Direction::kRow),
                 column = order_of(sides, Direction::kColumn);
    row.wanted = direction == Direction::kRow;
    column.wanted = !row.wanted;
    at::Tensor slot = at::full({1}, before);
    row.amax = column.amax = slot;
    op->quantize(tensor, kByFactor, row, column);
    return slot.item<float>();
  };
  for (const Direction direction : kDirections) {
    EXPECT_EQ(slot_after(x, 0, direction), 7.5f);
    EXPECT_EQ(slot_after(x, 7, direction), 7.5f);
    EXPECT_EQ(slot_after(x, 8, direction), 8);
    EXPECT_EQ(slot_after(with_nan, 0, direction), 9) << "NaN is no number";
    EXPECT_EQ(slot_after(with_inf, 0, direction), INFINITY);
    EXPECT_EQ(slot_after(at::zeros({3, 7}, at::kBFloat16), 0, direction), 0);
  }
}

// Copies in two formats have a factor and a slot each.
TEST_P(Fp8QuantizeTest, DelayedE5M2InputsHaveTwoFactors) {
  const Sides sides = sides_of(kByFactor, fp8::FormatChoice::kE5m2, fp8::Role::kInput);
  ASSERT_EQ(sides.row.format, fp8::Format::kE5M2);
  ASSERT_EQ(sides.column.format, fp8::Format::kE4M3);
  const at::Tensor x = contents().front().make({33, 129});
  QuantizeSpec row = order_of(sides, Direction::kRow, false, 5000),
               column = order_of(sides, Direction::kColumn, true, 40);
  row.amax = at::zeros({1});
  column.amax = at::zeros({1});
  const Fp8Matrix made = op->quantize(x, kByFactor, row, column);
  EXPECT_TRUE(holds(made.row, plain(x, sides, Direction::kRow, 5000)));
  EXPECT_TRUE(holds(made.column, plain(x, sides, Direction::kColumn, 40)));
  const float amax = x.to(at::kFloat).abs().max().item<float>();
  EXPECT_EQ(row.amax.item<float>(), amax);
  EXPECT_EQ(column.amax.item<float>(), amax);
}

TEST_P(Fp8QuantizeTest, UpdatesFactorsAsDefined) {
  constexpr int64_t kHistoryLength = 5, kSlots = 7;
  std::vector<fp8::Format> formats;
  for (int64_t i = 0; i < kSlots; ++i)
    formats.push_back(i % 2 == 0 ? fp8::Format::kE4M3 : fp8::Format::kE5M2);
  for (const auto algo : {fp8::AmaxAlgo::kMax, fp8::AmaxAlgo::kMostRecent})
    for (const int64_t margin : {0, 3})
      for (const bool recompute : {true, false}) {
        at::Tensor history = at::randn({kHistoryLength, kSlots}).abs(),
                   factors = at::rand({kSlots});
        history[0][3] = 0;
        history[0][4] = INFINITY;
        std::vector<float> amax(history.const_data_ptr<float>(),
                                history.const_data_ptr<float>() + history.numel());
        std::vector<float> wanted(factors.const_data_ptr<float>(),
                                  factors.const_data_ptr<float>() + kSlots);
        const fp8::History plain_history{amax, wanted, formats, kHistoryLength};
        for (int step = 0; step < 3; ++step) {
          op->update_factors(history, factors, formats, algo, margin, recompute);
          fp8::update_factors(plain_history, algo, margin, recompute);
          for (int64_t i = 0; i < kSlots; ++i)
            history[0][i] = amax[static_cast<size_t>(i)] = 0.25f * static_cast<float>(i + step);
        }
        EXPECT_TRUE(same_bits(history.flatten(), at::tensor(amax)));
        EXPECT_TRUE(same_bits(factors, at::tensor(wanted)));
      }
}

// Blocks so small that some codes stand for less than BF16's smallest normal number, 2^-126.
TEST(Fp8Rehearsal, CountsBlocksBelowRange) {
  const auto op = cpu::make_rehearsal(cpu::GemmOperands::kFp32);
  const at::Tensor small = contents()[6].make({64, 768}), normal = contents()[0].make({64, 768});
  int64_t wanted = 0;
  for (const Sides& sides : all_sides()) {
    if (sides.row.format != fp8::Format::kE4M3 || !fp8::has_power_of_two_scales(sides.recipe))
      continue;
    SCOPED_TRACE(text_of(sides));
    for (const at::Tensor& x : {small, normal, at::zeros_like(normal)}) {
      const Plain q = plain(x, sides, Direction::kRow);
      op->quantize(x, sides.recipe, order_of(sides, Direction::kRow),
                   no_order(sides, Direction::kColumn));
      const at::Tensor magnitudes = x.to(at::kDouble).abs();
      for (int64_t r = 0; r < q.grid.grid_rows; ++r)
        for (int64_t c = 0; c < q.grid.grid_columns; ++c) {
          const bool has_numbers =
              magnitudes.slice(0, r * q.grid.block_rows, (r + 1) * q.grid.block_rows)
                  .slice(1, c * q.grid.block_columns, (c + 1) * q.grid.block_columns)
                  .max()
                  .item<double>() > 0;
          const double smallest =
              fp8::decode(fp8::Format::kE4M3, 1) *
              double{q.scales[static_cast<size_t>(r * q.grid.grid_columns + c)].decode};
          wanted += has_numbers && smallest < 0x1p-126;
        }
      EXPECT_EQ(op->blocks_below_range(), wanted);
    }
  }
  EXPECT_GT(wanted, 100);
}

}  // namespace
}  // namespace octavo::engine
