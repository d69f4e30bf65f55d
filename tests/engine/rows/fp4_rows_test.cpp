// NVFP4's quantizers on plain memory: codes, scales, values and the Hadamard transform are those of
// fp8/nvfp4.cpp, bit for bit, on every instruction set.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "engine/cpu/fp4_kernels.h"
#include "engine/instruction_sets.h"
#include "engine/rows/drawn_bits.h"

// A name of its own: where files are joined, fp8_rows_test.cpp is beside it.
namespace octavo::engine::fp4_rows_test {
namespace {

using fp8::Direction;
using fp8::Granularity;

// Sizes that are whole blocks and not, in parts of vectors; usual numbers, wide ones, every number,
// zeros of both signs, infinities, NaN.
std::vector<Bits> matrices() {
  std::vector<Bits> made;
  const auto usual = [](size_t, uint32_t word) {
    return ((word & 0x80FF) + ((word >> 16 & 15) << 7) + (118 << 7)) & 0xFFFF;
  };
  for (const auto& [rows, columns] : {std::pair{64, 96},
                                      {16, 16},
                                      {128, 48},
                                      {32, 7},
                                      {7, 32},
                                      {33, 129},
                                      {1, 300},
                                      {300, 1},
                                      {48, 1040}})
    made.push_back(drawn(str("usual ", rows, " x ", columns), rows, columns, usual));
  made.push_back(drawn("wide", 64, 96, [](size_t, uint32_t word) {
    return (word & 0x807F) | ((word >> 16) % 240 + 8) << 7;
  }));
  made.push_back(drawn("finite", 256, 256, [](size_t i, uint32_t) {
    return (i * 40503 & 0x7F80) == 0x7F80 ? i & 0x807F : i * 40503;
  }));
  made.push_back(drawn("every value", 256, 256, [](size_t i, uint32_t) { return i; }));
  made.push_back(drawn("zeros", 64, 96, [](size_t, uint32_t word) { return word & 0x8000; }));
  made.push_back(drawn("one", 32, 32, [](size_t i, uint32_t) { return i == 77 ? 0xB801 : 0; }));
  made.push_back(drawn("infinite", 32, 64, [&](size_t i, uint32_t word) {
    return i == 100 ? size_t{0xFF80} : usual(i, word);
  }));
  made.push_back(drawn("tiny", 32, 64, [](size_t, uint32_t word) { return word & 0x80FF; }));
  return made;
}

// The matrix that the definition quantizes: transposed of a column copy, and rotated.
std::vector<float> source_of(const Bits& x, const cpu::Fp4Request& request) {
  std::vector<float> made(x.values.size());
  for (int64_t r = 0; r < x.rows; ++r)
    for (int64_t c = 0; c < x.columns; ++c) {
      const int64_t at =
          request.direction == Direction::kColumn ? c * x.rows + r : r * x.columns + c;
      made[static_cast<size_t>(at)] =
          cpu::from_bits(x.values[static_cast<size_t>(r * x.columns + c)]);
    }
  return request.rotate ? fp8::rotated(made) : made;
}

void expect_definition(const Bits& x, const cpu::Fp4Request& request) {
  const bool turned = request.direction == Direction::kColumn,
             squares = request.granularity == Granularity::kSquare16;
  const int64_t height = turned ? x.columns : x.rows, width = turned ? x.rows : x.columns;
  const auto blocks = squares ? fp8::Nvfp4Blocks::k16x16 : fp8::Nvfp4Blocks::k1x16;
  const fp8::Nvfp4 wanted =
      fp8::quantize_nvfp4(source_of(x, request), height, width, blocks, request.rounding);
  const std::vector<float> values = fp8::scaled_values(wanted, height, width, blocks);
  const fp8::Grid grid = fp8::grid_of(request.granularity, request.direction, x.rows, x.columns);
  for (const bool kept : {false, true}) {  // values are then made in a place of their own
    std::vector<uint8_t> codes(x.values.size(), 0x55);
    std::vector<uint16_t> numbers(x.values.size(), 0x5555);
    std::vector<float> scales(static_cast<size_t>(grid.count()), -1);
    std::vector<uint8_t> scale_codes(scales.size(), 0x55);
    // What is kept for later has two rows in one of bytes, where it can.
    const bool packs = kept && turned && !squares && x.rows % 2 == 0;
    std::vector<uint8_t> packed(packs ? codes.size() / 2 : 0);
    const cpu::Fp4Done done = cpu::quantize_fp4(x.matrix(), request,
                                                {.codes = packs ? nullptr : codes.data(),
                                                 .packed = packs ? packed.data() : nullptr,
                                                 .values = kept ? nullptr : numbers.data(),
                                                 .scales = scales.data(),
                                                 .scale_codes = scale_codes.data()});
    ASSERT_EQ(done.amax, wanted.amax);
    if (packs) {
      cpu::decode_packed({packed.data(), x.rows, x.columns, scales.data()}, numbers.data());
      for (size_t i = 0; i < codes.size(); ++i) {
        const size_t row = i / static_cast<size_t>(x.columns),
                     column = i % static_cast<size_t>(x.columns);
        const int pair = packed[row / 2 * static_cast<size_t>(x.columns) + column];
        const int nibble = row % 2 == 0 ? pair & 15 : pair >> 4;
        codes[i] = static_cast<uint8_t>((nibble & 7) | (nibble & 8) << 4);
      }
    }
    for (int64_t i = 0; i < x.rows * x.columns; ++i) {
      const int64_t r = i / x.columns, c = i % x.columns;
      const auto at = static_cast<size_t>(turned ? c * x.rows + r : i);
      const auto here = static_cast<size_t>(i);
      ASSERT_EQ((codes[here] & 7) | (codes[here] & 0x80) >> 4, wanted.codes[at]) << r << ", " << c;
      if (!kept || packs) ASSERT_EQ(cpu::from_bits(numbers[here]), values[at]) << r << ", " << c;
      const int64_t along = width == 0 ? 0 : (width + 15) / 16;
      const int64_t block = turned ? (squares ? c / 16 : c) * along + r / 16
                                   : (squares ? r / 16 : r) * along + c / 16;
      const auto place = static_cast<size_t>(grid.block_of(r, c));
      const uint8_t scale = wanted.scales[static_cast<size_t>(block)];
      ASSERT_EQ(scale_codes[place], scale);
      ASSERT_EQ(scales[place], fp8::decode(fp8::Format::kE4M3, scale));
    }
  }
}

TEST(Fp4Rows, AreThoseOfThePlainLoops) {
  int compared = 0;
  for (const Bits& x : matrices())
    for (const Direction direction : {Direction::kRow, Direction::kColumn})
      for (const Granularity granularity : {Granularity::kBlock16, Granularity::kSquare16})
        for (const bool rotate : {false, true})
          for (const bool stochastic : {false, true}) {
            const bool can = direction == Direction::kColumn && x.rows % 16 == 0;
            if (rotate && (!can || granularity == Granularity::kSquare16)) continue;
            for_each_instruction_set([&] {
              SCOPED_TRACE(str(x.name, direction == Direction::kRow ? ", rows" : ", columns",
                               ", granularity ", static_cast<int>(granularity),
                               rotate ? ", rotated" : "", stochastic ? ", stochastic" : ""));
              expect_definition(x, {.granularity = granularity,
                                    .direction = direction,
                                    .rotate = rotate,
                                    .rounding = {stochastic, 7, uint64_t{3} << 40}});
              ++compared;
            });
            if (HasFatalFailure()) return;
          }
  EXPECT_GT(compared, 100);
}

TEST(Fp4Rows, TheLargestMagnitudeSaysWhatIsNoNumber) {
  for (const Bits& x : matrices()) {
    bool nan = false;
    for (const uint16_t bits : x.values) nan |= (bits & 0x7FFF) > 0x7F80;
    std::vector<float> scales(x.values.size() + 1);
    const uint16_t largest =
        cpu::quantize_fp4(x.matrix(),
                          {.granularity = Granularity::kBlock16, .direction = Direction::kRow},
                          {.scales = scales.data()})
            .largest;
    EXPECT_EQ(largest > 0x7F80, nan) << x.name;
    EXPECT_EQ(largest, cpu::largest_bits(x.matrix())) << x.name;
  }
}

// E2M1 in a byte, as formats.h has it, is nvfp4.h's code with the sign elsewhere.
TEST(Fp4Rows, BytesAreNibblesWithTheSignOnTop) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = cpu::from_bits(static_cast<uint16_t>(bits));
    const uint8_t nibble = fp8::encode_e2m1(value), byte = fp8::encode(fp8::Format::kE2M1, value);
    ASSERT_EQ((byte & 7) | (byte & 0x80) >> 4, nibble) << value;
    ASSERT_EQ(fp8::decode(fp8::Format::kE2M1, byte), fp8::decode_e2m1(nibble));
  }
  EXPECT_EQ(fp8::max_value(fp8::Format::kE2M1), 6);
}

}  // namespace
}  // namespace octavo::engine::fp4_rows_test
