// The quantizers on plain memory, without torch, so that they are tested on machines that have
// none: codes, scales and values are those of fp8::quantize, bit for bit, on every instruction set.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "engine/cpu/fp8_kernels.h"
#include "engine/cpu/instruction_set.h"
#include "engine/instruction_sets.h"
#include "engine/rows/drawn_bits.h"
#include "fp8/quantize.h"

namespace octavo::engine {
namespace {

using fp8::Direction;
using fp8::Side;

constexpr Direction kDirections[] = {Direction::kRow, Direction::kColumn};
constexpr fp8::FormatChoice kChoices[] = {fp8::FormatChoice::kHybrid, fp8::FormatChoice::kE4m3,
                                          fp8::FormatChoice::kE5m2};
constexpr fp8::Role kRoles[] = {fp8::Role::kInput, fp8::Role::kWeight, fp8::Role::kGradient};

// Every BF16 value in order and in disorder (every block then has a NaN or an infinity or is very
// wide), and magnitudes that the recipes are made for, in lines that end inside a vector.
std::vector<Bits> matrices() {
  std::vector<Bits> made;
  made.push_back(drawn("every value", 256, 256, [](size_t i, uint32_t) { return i; }));
  made.push_back(drawn("every value, alone", 65536, 1, [](size_t i, uint32_t) { return i; }));
  made.push_back(
      drawn("every value, shuffled", 256, 256, [](size_t i, uint32_t) { return i * 40503; }));
  for (const auto& [rows, columns] : {std::pair{130, 257}, {33, 129}, {1, 300}, {300, 1}, {3, 7}}) {
    // A sign, an exponent from 2^-9 to 2^6 and any mantissa.
    made.push_back(
        drawn(str("usual ", rows, " x ", columns), rows, columns, [](size_t, uint32_t word) {
          return ((word & 0x80FF) + ((word >> 16 & 15) << 7) + (118 << 7)) & 0xFFFF;
        }));
    // Each line at a magnitude of its own, some of them below BF16's normal range.
    made.push_back(drawn(str("bands ", rows, " x ", columns), rows, columns,
                         [width = static_cast<size_t>(columns)](size_t i, uint32_t word) {
                           return (word & 0x807F) | ((i / width * 7 % 250) << 7);
                         }));
  }
  made.push_back(drawn("zeros", 64, 96, [](size_t, uint32_t word) { return word & 0x8000; }));
  return made;
}

struct Copy {
  std::vector<uint8_t> codes;
  std::vector<uint16_t> values;
  std::vector<float> decode;
  Copy(const Bits& x, size_t blocks)
      : codes(x.values.size(), 0xAA), values(x.values.size(), 0xAAAA), decode(blocks, -1) {}
  cpu::Fp8Target target(const Side& side) { return {side, codes.data(), values.data()}; }
};

bool same(float a, float b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

// Of a NaN times a NaN scale IEEE leaves the sign open; zeros may have any sign in a product.
testing::AssertionResult holds(const Copy& found, const fp8::Quantization& wanted,
                               std::span<const float> values, int64_t columns) {
  const uint8_t nan = fp8::layout(wanted.side.format).nan_code;
  for (size_t i = 0; i < wanted.scales.size() && !found.decode.empty(); ++i)
    if (!same(found.decode[i], wanted.scales[i].decode))
      return testing::AssertionFailure() << "scale " << i << ": wanted " << wanted.scales[i].decode
                                         << ", found " << found.decode[i];
  for (size_t i = 0; i < wanted.codes.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const fp8::Scale& scale =
        wanted.scales[static_cast<size_t>(wanted.grid.block_of(at / columns, at % columns))];
    const bool any_nan = std::isnan(scale.decode) && (found.codes[i] & 0x7F) == nan &&
                         (wanted.codes[i] & 0x7F) == nan;
    if (found.codes[i] != wanted.codes[i] && !any_nan)
      return testing::AssertionFailure() << "code " << i << ": wanted " << int{wanted.codes[i]}
                                         << ", found " << int{found.codes[i]};
    if (!same(cpu::from_bits(found.values[i]), values[i]))
      return testing::AssertionFailure() << "value " << i << ": wanted " << values[i] << ", found "
                                         << cpu::from_bits(found.values[i]);
  }
  return testing::AssertionSuccess();
}

// body(recipe, side, direction) for all that there are.
template <class Body>
void for_each_side(const Body& body) {
  for (const fp8::Recipe recipe : fp8::kRecipes)
    for (const auto choice : kChoices)
      for (const auto role : kRoles)
        for (const Direction direction : kDirections)
          body(recipe, fp8::side_of(recipe, choice, role, direction), direction);
}

TEST(Fp8Rows, BlocksAreThoseOfThePlainLoops) {
  int compared = 0;
  for (const Bits& x : matrices()) {
    const std::vector<float> numbers = x.numbers();
    for_each_side([&](fp8::Recipe recipe, const Side& side, Direction direction) {
      if (!fp8::has_power_of_two_scales(recipe)) return;
      const auto wanted = fp8::quantize(recipe, side, direction, {numbers, x.rows, x.columns}, 1);
      const std::vector<float> values = fp8::dequantize(wanted, x.columns);
      for_each_instruction_set([&] {
        SCOPED_TRACE(str(x.name, ", ", config::name_of(recipe), ", granularity ",
                         static_cast<int>(side.granularity)));
        Copy copy(x, wanted.scales.size());
        cpu::quantize_blocks(x.matrix(), recipe, direction, copy.target(side), copy.decode.data());
        EXPECT_TRUE(holds(copy, wanted, values, x.columns));
        ++compared;
      });
    });
    if (HasFailure()) return;  // one is enough to read
  }
  EXPECT_GT(compared, 100);
}

TEST(Fp8Rows, OneFactorForAllIsThatOfThePlainLoops) {
  constexpr fp8::Recipe kByFactor = fp8::recipe_with(fp8::ScaleRule::kHistory);
  for (const Bits& x : matrices()) {
    const std::vector<float> numbers = x.numbers();
    for (const auto format : {fp8::Format::kE4M3, fp8::Format::kE5M2})
      for (const float factor : {1.0f, 0.1f, 37.3f, 57344.0f, 0x1p-20f, 1e-40f, 3.4e38f}) {
        const Side side{format, fp8::Granularity::kTensor};
        const auto wanted =
            fp8::quantize(kByFactor, side, Direction::kRow, {numbers, x.rows, x.columns}, factor);
        std::vector<float> values(numbers.size());
        fp8::decode(format, wanted.codes, values);
        for_each_instruction_set([&] {
          SCOPED_TRACE(str(x.name, ", factor ", factor));
          Copy copy(x, 0);
          const uint16_t largest = cpu::quantize_by_factor(x.matrix(), factor, copy.target(side));
          EXPECT_TRUE(holds(copy, wanted, values, x.columns));
          EXPECT_EQ(largest, cpu::largest_bits(x.matrix()));
          EXPECT_EQ(cpu::amax_of_numbers(x.matrix(), largest), wanted.amax.value);
          EXPECT_EQ(largest > 0x7F80, wanted.amax.has_nan);
        });
      }
    if (HasFailure()) return;
  }
}

TEST(Fp8Rows, DecodesEveryCode) {
  constexpr int64_t kRows = 64, kColumns = 261;
  std::vector<uint8_t> codes(static_cast<size_t>(kRows * kColumns));
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
  for (const auto format : {fp8::Format::kE4M3, fp8::Format::kE5M2})
    for (const Direction direction : kDirections) {
      const auto grid = fp8::grid_of(fp8::Granularity::kBlock32, direction, kRows, kColumns);
      std::vector<float> decode(static_cast<size_t>(grid.count()));
      for (size_t i = 0; i < decode.size(); ++i)
        decode[i] = std::ldexp(1.0f, static_cast<int>(i % 51) - 20);
      for_each_instruction_set([&] {
        std::vector<uint16_t> found(codes.size());
        cpu::decode_codes({codes.data(), kRows, kColumns, format}, grid, decode.data(),
                          found.data());
        for (size_t i = 0; i < codes.size(); ++i) {
          const auto at = static_cast<int64_t>(i);
          const float scale =
              decode[static_cast<size_t>(grid.block_of(at / kColumns, at % kColumns))];
          ASSERT_TRUE(same(cpu::from_bits(found[i]), fp8::decode(format, codes[i]) * scale)) << i;
        }
      });
    }
}

// A build that fell back to plain loops would pass the tests above.
TEST(Fp8Rows, AreVectorsOfThisProcessor) {
  const std::string name = cpu::kernel_instruction_set();
#if defined(__aarch64__)
  EXPECT_TRUE(name.starts_with("NEON") || name.starts_with("SVE")) << name;
#else
  EXPECT_NE(name, "SCALAR");
#endif
  RecordProperty("instruction_set", name);
  int sets = 0;
  for_each_instruction_set([&] { ++sets; });
  EXPECT_GE(sets, 1);
}

}  // namespace
}  // namespace octavo::engine
