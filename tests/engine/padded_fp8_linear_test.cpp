// Tokens that are no multiple of what a recipe wants: rows of zeros change no number.

#include "engine/padded_fp8_linear.h"

#include "engine/aten/aten.h"
#include "engine/cpu/cpu.h"
#include "engine/fp8_matrices.h"
#include "engine/reference/reference.h"
#include "fp8/legality.h"

namespace octavo::engine {
namespace {

using fp8::Direction;
using fp8::FormatChoice;
using fp8::Recipe;
using fp8::Role;

constexpr int64_t kTokenCounts[] = {1, 7, 16, 17, 31, 33, 48, 100, 127, 129, 160};
constexpr int64_t kIn = 128, kOut = 256;

struct NamedMaker {
  const char* name;
  std::unique_ptr<Fp8Linear> (*make)();
};
constexpr NamedMaker kMakers[] = {
    {"cpu/rehearsal_fp32", [] { return cpu::make_rehearsal(cpu::GemmOperands::kFp32); }},
    {"aten/rehearsal", [] { return aten::make_rehearsal(); }},
    {"reference", [] { return reference::make_fp8_linear(); }},
};

FormatChoice format_of(Recipe recipe) {
  return fp8::traits_of(recipe).chooses_format ? FormatChoice::kHybrid : FormatChoice::kE4m3;
}

Fp8Matrix quantized(Fp8Linear& op, const at::Tensor& x, Recipe recipe, Role role,
                    bool column = true) {
  const Sides sides = sides_of(recipe, format_of(recipe), role);
  return op.quantize(x, recipe, order_of(sides, Direction::kRow),
                     column ? order_of(sides, Direction::kColumn, role == Role::kInput)
                            : no_order(sides, Direction::kColumn));
}

at::Tensor padded_by_hand(const at::Tensor& x, int64_t rows) {
  at::Tensor made = at::zeros({x.size(0) + rows, x.size(1)}, x.options());
  made.narrow(0, 0, x.size(0)).copy_(x);
  return made;
}

// The three GEMMs of one layer.
struct Results {
  at::Tensor y, dx, dw, sum;  // `sum`: added to what was there
};

Results multiply(Fp8Linear& op, Recipe recipe, const at::Tensor& x, const at::Tensor& w,
                 const at::Tensor& dy, const at::Tensor& bias) {
  const Fp8Matrix xs = quantized(op, x, recipe, Role::kInput),
                  ws = quantized(op, w, recipe, Role::kWeight),
                  dys = quantized(op, dy, recipe, Role::kGradient);
  Results r{.y = at::empty({x.size(0), w.size(0)}, x.options()),
            .dx = at::empty_like(x),
            .dw = at::empty(w.sizes(), at::kFloat),
            .sum = at::ones(w.sizes(), at::kFloat)};
  op.forward(xs, ws, bias, r.y);
  op.input_gradient(dys, ws, r.dx);
  op.weight_gradient(dys, xs, r.dw, Accumulate::kOverwrite);
  op.weight_gradient(dys, xs, r.sum, Accumulate::kAdd);
  return r;
}

template <class Body>
void for_each_case(const Body& body) {
  at::manual_seed(3);
  for (const NamedMaker& maker : kMakers)
    for (const Recipe recipe : kRecipes)
      for (const int64_t tokens : kTokenCounts) {
        SCOPED_TRACE(str(maker.name, " ", config::name_of(recipe), " ", tokens));
        // Each row and column at its own magnitude: a scale that took in a wrong row would show.
        const auto make = [](int64_t rows, int64_t columns, double scale) {
          return (at::randn({rows, columns}) * at::exp2(at::randint(-6, 6, {rows, 1})) *
                  at::exp2(at::randint(-6, 6, {1, columns})) * scale)
              .to(at::kBFloat16);
        };
        body(maker, recipe, make(tokens, kIn, 1), make(kOut, kIn, 0.1), make(tokens, kOut, 0.01));
      }
}

TEST(PaddedFp8Linear, EqualsOperandsThatWerePaddedByHandAndResultsThatWereCut) {
  for_each_case([](const NamedMaker& maker, Recipe recipe, const at::Tensor& x, const at::Tensor& w,
                   const at::Tensor& dy) {
    const auto padded = with_padding(maker.make()), plain = maker.make();
    const at::Tensor bias = at::randn({kOut});
    const int64_t missing = fp8::padding(recipe, x.size(0));
    const Results found = multiply(*padded, recipe, x, w, dy, bias);
    const Results wanted =
        multiply(*plain, recipe, padded_by_hand(x, missing), w, padded_by_hand(dy, missing), bias);
    EXPECT_TRUE(found.y.equal(wanted.y.narrow(0, 0, x.size(0))));
    EXPECT_TRUE(found.dx.equal(wanted.dx.narrow(0, 0, x.size(0))));
    EXPECT_TRUE(found.dw.equal(wanted.dw));
    EXPECT_TRUE(found.sum.equal(wanted.sum));
    EXPECT_EQ(padding_of(*padded).operands, missing > 0 ? 2 : 0);
    EXPECT_EQ(padding_of(*padded).zero_rows, 2 * missing);
    EXPECT_EQ(padding_of(*padded).tokens, missing > 0 ? 2 * x.size(0) : 0);
    EXPECT_EQ(padding_of(*plain).operands, 0);
  });
}

// The rehearsals and the reference multiply any number of tokens: what they make of the operands
// as they are is the same up to the order of the sums.
TEST(PaddedFp8Linear, EqualsOperandsWithoutZeros) {
  for_each_case([](const NamedMaker& maker, Recipe recipe, const at::Tensor& x, const at::Tensor& w,
                   const at::Tensor& dy) {
    const auto padded = with_padding(maker.make()), plain = maker.make();
    const Results found = multiply(*padded, recipe, x, w, dy, {});
    const Results wanted = multiply(*plain, recipe, x, w, dy, {});
    const auto near = [](const at::Tensor& a, const at::Tensor& b, double tolerance) {
      const at::Tensor from = a.to(at::kDouble), to = b.to(at::kDouble);
      return ((from - to).norm() <= to.norm() * tolerance).item<bool>();
    };
    EXPECT_TRUE(near(found.y, wanted.y, 1e-3));
    EXPECT_TRUE(near(found.dx, wanted.dx, 1e-3));
    EXPECT_TRUE(near(found.dw, wanted.dw, 1e-6));
  });
}

TEST(PaddedFp8Linear, StatisticsAreOfTheTokensAlone) {
  for_each_case([](const NamedMaker& maker, Recipe recipe, const at::Tensor& x, const at::Tensor&,
                   const at::Tensor&) {
    const auto padded = with_padding(maker.make()), plain = maker.make();
    const Fp8Matrix with = quantized(*padded, x, recipe, Role::kGradient),
                    without = quantized(*plain, x, recipe, Role::kGradient);
    EXPECT_EQ(with.rows, x.size(0) + fp8::padding(recipe, x.size(0)));
    for (const Direction d : kDirections) {
      const auto found = padded->measure(x, with, d), wanted = plain->measure(x, without, d);
      EXPECT_EQ(found.elements, wanted.elements);
      EXPECT_EQ(found.nonzero, wanted.nonzero);
      EXPECT_EQ(found.incidents.saturated, wanted.incidents.saturated);
      EXPECT_EQ(found.incidents.underflowed, wanted.incidents.underflowed);
      EXPECT_EQ(found.amax, wanted.amax);
      EXPECT_EQ(found.factor, wanted.factor);
      EXPECT_NEAR(found.noise, wanted.noise, 1e-9 * wanted.noise);
    }
  });
}

// The forward GEMM of an evaluation takes any number of tokens: nothing is added in vain.
TEST(PaddedFp8Linear, RowCopiesAloneStayAsTheyAre) {
  const auto padded = with_padding(reference::make_fp8_linear());
  const at::Tensor x = at::randn({5, kIn}).to(at::kBFloat16);
  for (const Recipe recipe : kRecipes)
    EXPECT_EQ(quantized(*padded, x, recipe, Role::kInput, /*column=*/false).rows, 5);
  EXPECT_EQ(padding_of(*padded).operands, 0);
}

}  // namespace
}  // namespace octavo::engine
