#pragma once
// Matrices that are hard to quantize, and what fp8::quantize makes of them: the oracle of every
// quantizer.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "engine/fp8_linear.h"
#include "engine/harness.h"
#include "fp8/quantize.h"

namespace octavo::engine {

using fp8::kRecipes;
// Quantizes by the factor that it is given.
constexpr fp8::Recipe kByFactor = fp8::recipe_with(fp8::ScaleRule::kHistory);
constexpr fp8::FormatChoice kFormatChoices[] = {fp8::FormatChoice::kHybrid,
                                                fp8::FormatChoice::kE4m3, fp8::FormatChoice::kE5m2};
constexpr fp8::Role kRoles[] = {fp8::Role::kInput, fp8::Role::kWeight, fp8::Role::kGradient};
constexpr fp8::Direction kDirections[] = {fp8::Direction::kRow, fp8::Direction::kColumn};
// One element, less than a vector, ragged in both directions, whole blocks, lines.
constexpr Extent kFp8Extents[] = {{1, 1},    {3, 7},    {33, 129}, {130, 257},
                                  {64, 768}, {256, 96}, {1, 300},  {300, 1}};

// Delayed only: no power of two.
constexpr float kFactor = 37.3f;

// The two copies that a recipe makes of one matrix.
struct Sides {
  fp8::Recipe recipe;
  fp8::Side row, column;
  fp8::Side of(fp8::Direction d) const { return d == fp8::Direction::kRow ? row : column; }
};
inline Sides sides_of(fp8::Recipe recipe, fp8::FormatChoice choice, fp8::Role role) {
  return {recipe, side_of(recipe, choice, role, fp8::Direction::kRow),
          side_of(recipe, choice, role, fp8::Direction::kColumn)};
}
inline std::string text_of(const Sides& s) {
  const auto text = [](const fp8::Side& side) {
    return str(side.format == fp8::Format::kE4M3 ? "E4M3" : "E5M2", "/",
               static_cast<int>(side.granularity));
  };
  return str(config::name_of(s.recipe), " ", text(s.row), " ", text(s.column));
}
// Every recipe with every format and role; what is the same is there once.
inline std::vector<Sides> all_sides() {
  std::vector<Sides> result;
  std::set<std::string> seen;
  for (const auto recipe : kRecipes)
    for (const auto choice : kFormatChoices)
      for (const auto role : kRoles) {
        const Sides sides = sides_of(recipe, choice, role);
        if (seen.insert(text_of(sides)).second) result.push_back(sides);
      }
  return result;
}

inline at::Tensor from_bits(const std::vector<uint16_t>& bits, const Extent& e) {
  at::Tensor x = at::empty({e.rows, e.width}, at::kBFloat16);
  std::copy(bits.begin(), bits.end(), static_cast<uint16_t*>(x.mutable_data_ptr()));
  return x;
}
inline const uint16_t* bits_of(const at::Tensor& x) {
  return static_cast<const uint16_t*>(x.const_data_ptr());
}

// N(0, scale), with one element in `every` replaced by one of `odd`.
inline at::Tensor sprinkled(const Extent& e, double scale, int64_t every,
                            const std::vector<float>& odd) {
  at::Tensor x = at::randn({e.rows, e.width}) * scale;
  float* values = x.mutable_data_ptr<float>();
  for (int64_t i = every / 2; i < x.numel(); i += every)
    values[i] = odd[static_cast<size_t>(i / every) % odd.size()];
  return x.to(at::kBFloat16);
}

struct Content {
  const char* name;
  at::Tensor (*make)(const Extent&);
};
inline const std::vector<Content>& contents() {
  static const std::vector<Content> kContents = {
      {"normal", [](const Extent& e) { return sprinkled(e, 1, 1000, {0.5f}); }},
      {"zeros", [](const Extent& e) { return sprinkled(e, 0, 3, {-0.0f}); }},
      {"denormals",
       [](const Extent& e) {
         return at::randint(-127, 128, {e.rows, e.width}).mul(0x1p-133).to(at::kBFloat16);
       }},
      {"infinities",
       [](const Extent& e) {
         return sprinkled(e, 1, 97, {INFINITY, -INFINITY});
       }},
      {"NaN",
       [](const Extent& e) {
         return sprinkled(e, 1, 97, {NAN, -1e5f, NAN, INFINITY});
       }},
      {"outliers",
       [](const Extent& e) {
         return sprinkled(e, 1, 61, {1e4f, -3e4f});
       }},
      {"tiny",
       [](const Extent& e) {
         return sprinkled(e, 1e-38, 61, {1e-30f, 0.0f});
       }},
      {"huge",
       [](const Extent& e) {
         return sprinkled(e, 5e37, 61, {3.38e38f, 1.0f});
       }},
      // 1e-38 to 1e38 in one matrix, and each row at its own magnitude, each column half of that.
      {"wide",
       [](const Extent& e) {
         const at::Tensor power = at::rand({e.rows, e.width}) * 76 - 38;
         return (at::pow(10, power) * at::randn({e.rows, e.width}).sign()).to(at::kBFloat16);
       }},
      {"bands",
       [](const Extent& e) {
         const at::Tensor rows = at::randint(-60, 60, {e.rows, 1}),
                          columns = at::randint(-30, 30, {1, e.width});
         return (at::randn({e.rows, e.width}) * at::exp2(rows + columns)).to(at::kBFloat16);
       }},
  };
  return kContents;
}

// Every BF16 value, in the order of its bits or shuffled.
inline at::Tensor every_bf16(const Extent& e, bool shuffled) {
  at::Tensor order = shuffled ? at::randperm(65536) : at::arange(65536);
  std::vector<uint16_t> bits(65536);
  for (size_t i = 0; i < bits.size(); ++i)
    bits[i] = static_cast<uint16_t>(order.const_data_ptr<int64_t>()[i]);
  return from_bits(bits, e);
}

// The block of element i.
inline size_t block_of(const fp8::Grid& grid, size_t i, int64_t columns) {
  const auto row = static_cast<int64_t>(i) / columns, column = static_cast<int64_t>(i) % columns;
  return static_cast<size_t>(row / grid.block_rows * grid.grid_columns +
                             column / grid.block_columns);
}

// What fp8::quantize makes of a matrix, and what the codes stand for, as the rehearsal multiplies
// it: without a scale that is not a power of two.
struct Plain : fp8::Quantization {
  int64_t columns = 0;
  std::vector<float> values;
};
inline Plain plain(const at::Tensor& x, const Sides& sides, fp8::Direction direction,
                   float factor = kFactor) {
  const at::Tensor numbers = x.to(at::kFloat);
  const std::span in(numbers.const_data_ptr<float>(), static_cast<size_t>(numbers.numel()));
  Plain made{fp8::quantize(sides.recipe, sides.of(direction), direction, {in, x.size(0), x.size(1)},
                           factor),
             x.size(1),
             {}};
  made.values.resize(in.size());
  if (made.side.granularity == fp8::Granularity::kTensor)
    fp8::decode(made.side.format, made.codes, made.values);
  else
    made.values = dequantize(made, made.columns);
  return made;
}

inline QuantizeSpec order_of(const Sides& sides, fp8::Direction direction, bool keep = false,
                             float factor = kFactor) {
  QuantizeSpec order{
      .side = sides.of(direction), .wanted = true, .keep = keep, .factor = {}, .amax = {}};
  if (fp8::uses_history(sides.recipe)) order.factor = at::full({1}, factor);
  return order;
}
inline QuantizeSpec no_order(const Sides& sides, fp8::Direction direction) {
  QuantizeSpec order = order_of(sides, direction);
  order.wanted = false;
  return order;
}

// One NaN is as good as another, and so is a zero: GEMMs do not see its sign.
inline bool same_number(float found, float wanted) {
  return found == wanted || (std::isnan(found) && std::isnan(wanted));
}
// Of a NaN times a NaN scale IEEE leaves the sign open.
inline bool same_code(const Plain& wanted, size_t i, uint8_t found) {
  if (found == wanted.codes[i]) return true;
  const uint8_t nan = fp8::layout(wanted.side.format).nan_code;
  return std::isnan(wanted.scales[block_of(wanted.grid, i, wanted.columns)].decode) &&
         (found & 0x7F) == nan && (wanted.codes[i] & 0x7F) == nan;
}

// A copy holds what the oracle made: codes, scales and values, those that it has.
inline testing::AssertionResult holds(const Fp8Copy& copy, const Plain& wanted) {
  const auto differs = [](const char* what, size_t i, float wanted_number, float found) {
    return testing::AssertionFailure()
           << what << " " << i << ": wanted " << wanted_number << ", found " << found;
  };
  if (!copy.defined()) return testing::AssertionFailure() << "no copy";
  if (copy.codes.defined()) {
    const auto* codes = copy.codes.const_data_ptr<uint8_t>();
    for (size_t i = 0; i < wanted.codes.size(); ++i)
      if (!same_code(wanted, i, codes[i])) return differs("code", i, wanted.codes[i], codes[i]);
  }
  const bool e8m0 = copy.scales.scalar_type() == at::kByte;
  const at::Tensor scales = copy.scales.to(at::kFloat);
  if (scales.numel() != wanted.grid.count())
    return testing::AssertionFailure() << scales.numel() << " scales";
  for (size_t i = 0; i < wanted.scales.size(); ++i) {
    const float stored = scales.const_data_ptr<float>()[i];
    const float found = e8m0 ? fp8::decode_e8m0(static_cast<uint8_t>(stored)) : stored;
    if (!same_number(found, wanted.scales[i].decode))
      return differs("scale", i, wanted.scales[i].decode, found);
  }
  if (!copy.values.defined()) return testing::AssertionSuccess();
  const at::Tensor values = copy.values.to(at::kFloat);
  const auto* numbers = values.const_data_ptr<float>();
  for (size_t i = 0; i < wanted.values.size(); ++i)
    if (!same_number(numbers[i], wanted.values[i]))
      return differs("value", i, wanted.values[i], numbers[i]);
  return testing::AssertionSuccess();
}

// Bytes that a matrix keeps in memory; shared tensors count once.
inline int64_t bytes_of(const Fp8Matrix& matrix) {
  int64_t bytes = 0;
  std::vector<const void*> seen;
  for (const Fp8Copy* copy : {&matrix.row, &matrix.column})
    for (const at::Tensor* t : {&copy->codes, &copy->scales, &copy->values}) {
      if (!t->defined() || std::ranges::find(seen, t->const_data_ptr()) != seen.end()) continue;
      seen.push_back(t->const_data_ptr());
      bytes += static_cast<int64_t>(t->nbytes());
    }
  return bytes;
}

}  // namespace octavo::engine
