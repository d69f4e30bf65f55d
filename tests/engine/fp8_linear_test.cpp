// The three GEMMs over quantized matrices, and the statistics of quantizing.

#include <algorithm>

#include "engine/aten/aten.h"
#include "engine/aten/fp8_quantize.h"
#include "engine/cpu/cpu.h"
#include "engine/fp8_matrices.h"

namespace octavo::engine {
namespace {

using fp8::Direction;
using fp8::FormatChoice;
using fp8::Recipe;
using fp8::Role;

OCTAVO_OP_TESTS(Fp8Linear);

struct LinearShape {
  int64_t rows, in, out;
};
// FP8 hardware wants multiples of 16 or more; the arithmetic is the same for all.
constexpr LinearShape kLinearShapes[] = {{1, 1, 1},     {3, 7, 17},     {33, 129, 64},
                                         {100, 127, 7}, {64, 768, 128}, {256, 96, 300}};
std::string text_of(const LinearShape& s) {
  return str(s.rows, " x ", s.in, " -> ", s.out);
}

// A matrix as one implementation quantizes it, in both directions.
struct Operand {
  Fp8Matrix found, wanted;
  at::Tensor row, column;  // magnitudes of what the copies stand for, FP64
};

class Gemms {
 public:
  Gemms(Fp8Linear& op, Fp8Linear& oracle, Recipe recipe, FormatChoice choice)
      : op_(op), oracle_(oracle), recipe_(recipe), choice_(choice) {}

  Operand operand(const at::Tensor& x, Role role) {
    const Sides sides = sides_of(recipe_, choice_, role);
    const QuantizeSpec row = order_of(sides, Direction::kRow, false, factor(role)),
                       column =
                           order_of(sides, Direction::kColumn, role == Role::kInput, factor(role));
    const at::Tensor bf16 = x.to(at::kBFloat16);
    return {op_.quantize(bf16, recipe_, row, column), oracle_.quantize(bf16, recipe_, row, column),
            numbers(bf16, sides, Direction::kRow, factor(role)),
            numbers(bf16, sides, Direction::kColumn, factor(role))};
  }

 private:
  // Delayed: another for each, none a power of two.
  static float factor(Role role) { return 37.3f + 100 * static_cast<float>(role); }
  static at::Tensor numbers(const at::Tensor& x, const Sides& sides, Direction direction,
                            float factor) {
    const auto values = dequantize(plain(x, sides, direction, factor), x.size(1));
    return at::tensor(values).view(x.sizes()).to(at::kDouble);
  }

  Fp8Linear &op_, &oracle_;
  Recipe recipe_;
  FormatChoice choice_;
};

// The usual formats of a recipe; in the others nothing is multiplied that is not in these too.
bool is_usual(Recipe recipe, FormatChoice choice) {
  return choice !=
         (fp8::traits_of(recipe).chooses_format ? FormatChoice::kE4m3 : FormatChoice::kHybrid);
}

// Calls body(gemms, shape) for every recipe and pair of formats.
template <class Body>
void for_each_gemm(Fp8Linear& op, Fp8Linear& oracle, const Body& body) {
  for (const Recipe recipe : kRecipes)
    for (const FormatChoice choice : kFormatChoices)
      for (const LinearShape& s : kLinearShapes) {
        if (!is_usual(recipe, choice)) continue;
        SCOPED_TRACE(str(config::name_of(recipe), " ", config::name_of(choice), ", ", text_of(s)));
        Gemms gemms(op, oracle, recipe, choice);
        body(gemms, s);
      }
}

TEST_P(Fp8LinearValues, Forward) {
  for_each_gemm(*op, *oracle, [&](Gemms& gemms, const LinearShape& s) {
    const Operand x = gemms.operand(random({s.rows, s.in}), Role::kInput),
                  w = gemms.operand(random({s.out, s.in}, 0.1), Role::kWeight);
    const at::Tensor b = at::randn({s.out});
    for (const bool biased : {false, true}) {
      const at::Tensor bias = biased ? b : at::Tensor();
      at::Tensor y = at::full({s.rows, s.out}, NAN, compute), wanted = at::empty_like(y);
      op->forward(x.found, w.found, bias, y);
      oracle->forward(x.wanted, w.wanted, bias, wanted);
      at::Tensor slack = kSumSlack * at::mm(x.row.abs(), w.row.abs().t());
      if (biased) slack += kSumSlack * magnitude(b);
      EXPECT_TRUE(near(y, wanted, slack)) << (biased ? "with bias" : "without bias");
      // And the oracle itself: the GEMMs of what fp8::quantize made.
      at::Tensor exact_y = at::mm(x.row, w.row.t());
      if (biased) exact_y += b.to(at::kDouble);
      EXPECT_TRUE(near(wanted, exact_y.to(compute), slack));
    }
  });
}

TEST_P(Fp8LinearValues, InputGradient) {
  for_each_gemm(*op, *oracle, [&](Gemms& gemms, const LinearShape& s) {
    const Operand dy = gemms.operand(random({s.rows, s.out}, 1e-2), Role::kGradient),
                  w = gemms.operand(random({s.out, s.in}, 0.1), Role::kWeight);
    at::Tensor dx = at::full({s.rows, s.in}, NAN, compute), wanted = at::empty_like(dx);
    op->input_gradient(dy.found, w.found, dx);
    oracle->input_gradient(dy.wanted, w.wanted, wanted);
    const at::Tensor slack = kSumSlack * at::mm(dy.row.abs(), w.column.abs());
    EXPECT_TRUE(near(dx, wanted, slack));
    EXPECT_TRUE(near(wanted, at::mm(dy.row, w.column).to(compute), slack));
  });
}

TEST_P(Fp8LinearValues, WeightGradient) {
  for_each_gemm(*op, *oracle, [&](Gemms& gemms, const LinearShape& s) {
    const Operand dy = gemms.operand(random({s.rows, s.out}, 1e-2), Role::kGradient),
                  x = gemms.operand(random({s.rows, s.in}), Role::kInput);
    for (const auto mode : kBothModes) {
      const bool add = mode == Accumulate::kAdd;
      const at::Tensor before = at::randn({s.out, s.in}) * 1e-2;
      at::Tensor dw = add ? before.clone() : at::full({s.out, s.in}, NAN), wanted = before.clone();
      const at::Tensor slack =
          kSumSlack * (at::mm(dy.column.abs().t(), x.column.abs()) + magnitude(before));
      op->weight_gradient(dy.found, x.found, dw, mode);
      oracle->weight_gradient(dy.wanted, x.wanted, wanted, mode);
      EXPECT_TRUE(near(dw, wanted, slack)) << (add ? "add" : "overwrite");
      at::Tensor exact_dw = at::mm(dy.column.t(), x.column);
      if (add) exact_dw += exact(before);
      EXPECT_TRUE(near(wanted, exact_dw.to(at::kFloat), slack));
      // Into BF16: rounded once.
      at::Tensor low = before.to(at::kBFloat16), wanted_low = low.clone();
      op->weight_gradient(dy.found, x.found, low, mode);
      oracle->weight_gradient(dy.wanted, x.wanted, wanted_low, mode);
      EXPECT_TRUE(near(low, wanted_low, slack)) << (add ? "add to BF16" : "overwrite BF16");
    }
  });
}

// The input in E5M2 goes forward; the weight gradient, whose gradient is E5M2, reads it in E4M3.
TEST_P(Fp8LinearTest, E5M2InputsHaveAnotherColumnCopy) {
  for (const Recipe recipe : kRecipes) {
    SCOPED_TRACE(config::name_of(recipe));
    const Sides sides = sides_of(recipe, FormatChoice::kE5m2, Role::kInput);
    // 1 + 2^-3 is an E4M3 number and none in E5M2; one scale fits all.
    const at::Tensor x = at::full({16, 16}, 1.125, at::kBFloat16);
    const Fp8Matrix made = op->quantize(x, recipe, order_of(sides, Direction::kRow, false, 1),
                                        order_of(sides, Direction::kColumn, true, 1));
    EXPECT_EQ(made.row_side.format, fp8::Format::kE5M2);
    EXPECT_EQ(made.column_side.format, fp8::Format::kE4M3);
    const Sides one = sides_of(recipe, FormatChoice::kE4m3, Role::kWeight);
    const Fp8Matrix unit = op->quantize(at::eye(16).to(at::kBFloat16), recipe,
                                        order_of(one, Direction::kRow, false, 1),
                                        order_of(one, Direction::kColumn, false, 1));
    at::Tensor y = at::empty({16, 16}, compute), dw = at::empty({16, 16});
    op->forward(made, unit, at::Tensor(), y);
    op->weight_gradient(unit, made, dw, Accumulate::kOverwrite);
    if (fp8::traits_of(recipe).scale_rule == fp8::ScaleRule::kTe) {
      // 1.125 is the amax: both formats have it, up to 1 / 398.2.
      EXPECT_TRUE(at::allclose(y.to(at::kFloat), at::full({16, 16}, 1.125), 1e-2));
    } else {
      EXPECT_TRUE(y.to(at::kFloat).equal(at::full({16, 16}, 1.0)));
    }
    EXPECT_TRUE(at::allclose(dw, at::full({16, 16}, 1.125), 1e-6));
  }
}

TEST_P(Fp8LinearTest, ZerosGiveZerosAndNanShows) {
  for (const Recipe recipe : kRecipes) {
    SCOPED_TRACE(config::name_of(recipe));
    Gemms gemms(*op, *oracle, recipe, FormatChoice::kE4m3);
    at::Tensor x = at::zeros({32, 64});
    const Operand w = gemms.operand(at::randn({48, 64}), Role::kWeight),
                  dy = gemms.operand(at::randn({32, 48}), Role::kGradient);
    at::Tensor y = at::empty({32, 48}, compute), dw = at::empty({48, 64});
    op->forward(gemms.operand(x, Role::kInput).found, w.found, at::Tensor(), y);
    EXPECT_EQ(y.abs().sum().item<float>(), 0);
    x[1][63] = NAN;
    const Operand bad = gemms.operand(x, Role::kInput);
    op->forward(bad.found, w.found, at::Tensor(), y);
    op->weight_gradient(dy.found, bad.found, dw, Accumulate::kOverwrite);
    EXPECT_TRUE(y[1].isnan().all().item<bool>());
    EXPECT_TRUE(all_finite(y[0]) && all_finite(y[2])) << "other rows have other blocks";
    EXPECT_TRUE(dw.select(1, 63).isnan().all().item<bool>());
    EXPECT_TRUE(all_finite(dw.narrow(1, 0, 63))) << "other columns have other blocks";
  }
}

TEST_P(Fp8LinearTest, GemmsAreTheSameTwice) {
  for (const Recipe recipe : kRecipes) {
    Gemms gemms(*op, *oracle, recipe, FormatChoice::kHybrid);
    const Operand x = gemms.operand(at::randn({96, 256}), Role::kInput),
                  w = gemms.operand(at::randn({128, 256}), Role::kWeight),
                  dy = gemms.operand(at::randn({96, 128}), Role::kGradient);
    at::Tensor y[2], dx[2], dw[2];
    for (int i = 0; i < 2; ++i) {
      y[i] = at::empty({96, 128}, compute);
      dx[i] = at::empty({96, 256}, compute);
      dw[i] = at::empty({128, 256});
      op->forward(x.found, w.found, at::Tensor(), y[i]);
      op->input_gradient(dy.found, w.found, dx[i]);
      op->weight_gradient(dy.found, x.found, dw[i], Accumulate::kOverwrite);
    }
    EXPECT_TRUE(same_bits(y[0], y[1]) && same_bits(dx[0], dx[1]) && same_bits(dw[0], dw[1]))
        << config::name_of(recipe);
  }
}

testing::AssertionResult same_up_to(double found, double wanted, double slack) {
  if (std::isnan(wanted) ? std::isnan(found)
                         : found == wanted || std::fabs(found - wanted) <= slack)
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << "wanted " << wanted << ", found " << found;
}

// Counts, amax and factor are those of the plain loops; signal and noise those of the oracle.
void expect_health(const fp8::TensorHealth& found, const fp8::TensorHealth& oracle,
                   const Plain& plain, const at::Tensor& x) {
  EXPECT_EQ(found.elements, x.numel());
  EXPECT_EQ(found.nonzero, x.ne(0).sum().item<int64_t>());
  EXPECT_EQ(found.incidents.nan, plain.incidents.nan);
  EXPECT_EQ(found.incidents.inf, plain.incidents.inf);
  EXPECT_EQ(found.incidents.saturated, plain.incidents.saturated);
  EXPECT_EQ(found.incidents.underflowed, plain.incidents.underflowed);
  EXPECT_EQ(found.amax, plain.amax.value);
  EXPECT_TRUE(same_up_to(found.signal, oracle.signal, 1e-9 * oracle.signal)) << "signal";
  // Where there is a NaN or an infinity, no factor and no noise mean anything. Values next to the
  // largest float may round up to infinity.
  const bool finite = std::ranges::all_of(plain.values, [](float v) { return std::isfinite(v); });
  if (found.incidents.nan + found.incidents.inf > 0 || !finite) return;
  EXPECT_EQ(found.factor, oracle.factor);
  // Products of code and scale may be rounded to FP32.
  const double slack = 1e-4 * oracle.noise + 0x1p-40 * oracle.signal;
  EXPECT_TRUE(same_up_to(found.noise, oracle.noise, slack)) << "noise";
}

TEST_P(Fp8LinearTest, MeasuresWhatThePlainLoopsSaw) {
  if (compute != at::kBFloat16) GTEST_SKIP() << "FP8 is made from BF16";
  for (const Content& content : contents())
    for (const Extent& e : {Extent{1, 1}, Extent{3, 7}, Extent{33, 129}, Extent{130, 33}}) {
      const at::Tensor x = content.make(e);
      for (const Sides& sides : all_sides())
        for (const Direction direction : kDirections) {
          SCOPED_TRACE(str(content.name, ", ", text_of(e), ", ", text_of(sides), ", ",
                           direction == Direction::kRow ? "rows" : "columns"));
          const auto measured = [&](Fp8Linear& who) {
            const Fp8Matrix made = who.quantize(x, sides.recipe, order_of(sides, Direction::kRow),
                                                order_of(sides, Direction::kColumn, true));
            return who.measure(x, made, direction);
          };
          expect_health(measured(*op), measured(*oracle), plain(x, sides, direction), x);
          if (testing::Test::HasFailure()) return;
        }
    }
}

TEST_P(Fp8LinearTest, MeasuresAHandMadeMatrix) {
  // Times 2: 2, -3 (E4M3 has both), 600 (saturates to 448), 2^-11 (to zero), 0, 17 (to 16).
  const at::Tensor x =
      at::tensor({1.0f, -1.5f, 300.0f, 0x1p-12f, 0.0f, 8.5f}).view({2, 3}).to(at::kBFloat16);
  const Sides sides = sides_of(kByFactor, FormatChoice::kHybrid, Role::kInput);
  const Fp8Matrix made = op->quantize(x, kByFactor, order_of(sides, Direction::kRow, false, 2),
                                      no_order(sides, Direction::kColumn));
  const fp8::TensorHealth h = op->measure(x, made, Direction::kRow);
  EXPECT_EQ(h.elements, 6);
  EXPECT_EQ(h.nonzero, 5);
  EXPECT_EQ(h.incidents, (fp8::Incidents{.saturated = 1, .underflowed = 1}));
  EXPECT_EQ(h.amax, 300);
  EXPECT_EQ(h.factor, 2);
  EXPECT_DOUBLE_EQ(h.signal, 1 + 2.25 + 90000 + 0x1p-24 + 72.25);
  EXPECT_DOUBLE_EQ(h.noise, 76.0 * 76 + 0x1p-24 + 0.25);
}

TEST_P(Fp8LinearTest, MeasuresTheSameWithAnyNumberOfThreads) {
  const at::Tensor x = contents()[5].make({130, 257});
  for (const Sides& sides : all_sides()) {
    const Fp8Matrix made = op->quantize(x, sides.recipe, order_of(sides, Direction::kRow),
                                        order_of(sides, Direction::kColumn, true));
    expect_independent_of_threads([&] {
      const fp8::TensorHealth h = op->measure(x, made, Direction::kColumn);
      return std::vector<at::Tensor>{at::tensor({h.signal, h.noise}, at::kDouble)};
    });
  }
}

// Of a large matrix libtorch's kernels look at some rows, which must be like all of them, and at
// every element for what must not be missed.
TEST(MeasuringAPart, IsLikeTheWhole) {
  at::manual_seed(5);
  const auto whole = cpu::make_rehearsal(cpu::GemmOperands::kFp32), part = aten::make_rehearsal();
  at::Tensor x =
      (at::randn({3001, 700}) * at::exp2(at::randint(-18, 1, {3001, 1}))).to(at::kBFloat16);
  x[17][3] = 1000;
  for (const Sides& sides : all_sides())
    for (const Direction direction : kDirections) {
      SCOPED_TRACE(str(text_of(sides), direction == Direction::kRow ? ", rows" : ", columns"));
      const auto measured = [&](Fp8Linear& who, const at::Tensor& of) {
        const Fp8Matrix made = who.quantize(of, sides.recipe, order_of(sides, Direction::kRow),
                                            order_of(sides, Direction::kColumn));
        return who.measure(of, made, direction);
      };
      const fp8::TensorHealth found = measured(*part, x), wanted = measured(*whole, x);
      EXPECT_LE(found.elements, aten::kMostMeasured + x.size(1));
      EXPECT_GT(found.elements, aten::kMostMeasured / 2);
      EXPECT_EQ(found.amax, wanted.amax);
      EXPECT_EQ(found.incidents.nan, 0);
      EXPECT_EQ(found.incidents.inf, 0);
      EXPECT_NEAR(found.underflowed_percent(), wanted.underflowed_percent(), 5);
      EXPECT_NEAR(found.saturated_percent(), wanted.saturated_percent(), 0.5);
      at::Tensor bad = x.clone();
      bad[15][0] = NAN;
      EXPECT_GT(measured(*part, bad).incidents.nan, 0);
      bad[15][0] = INFINITY;
      EXPECT_GT(measured(*part, bad).incidents.inf, 0);
    }
}

}  // namespace
}  // namespace octavo::engine
