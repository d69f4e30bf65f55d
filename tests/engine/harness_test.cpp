// The harness itself: it must be able to fail.

#include "engine/harness.h"
#include "engine/fp8_linear.h"

namespace octavo::engine {
namespace {

TEST(Harness, OneUlpPassesTwoDoNot) {
  for (const auto dtype : {at::kBFloat16, at::kFloat}) {
    const at::Tensor wanted = at::tensor({1.0, -3.0, 1e-5, 2e4}).to(dtype);
    const double unit = ulp(exact(wanted), dtype)[1].item<double>();
    EXPECT_EQ(unit, dtype == at::kBFloat16 ? 0x1p-6 : 0x1p-22);
    const double allowed = dtype == at::kBFloat16 ? 1 : 2;
    at::Tensor found = wanted.clone();
    found[1] = -3.0 - allowed * unit;
    EXPECT_TRUE(near(found, wanted));
    found[1] = -3.0 + (allowed + 1) * unit;
    EXPECT_FALSE(near(found, wanted));
    EXPECT_TRUE(near(found, wanted, unit));
  }
}

TEST(Harness, NanNeverPasses) {
  const at::Tensor good = at::ones({3}), bad = at::full({3}, NAN);
  EXPECT_FALSE(near(bad, good, 1e9));
  EXPECT_FALSE(near(good, bad, 1e9));
  EXPECT_FALSE(near(good, at::ones({4}), 1e9));
  EXPECT_FALSE(near(good, good.to(at::kDouble), 1e9));
}

TEST(Harness, NumericGradientOfACube) {
  at::Tensor x = at::tensor({0.5f, -1.0f, 2.0f});
  const at::Tensor weight = at::tensor({1.0f, 2.0f, -1.0f});
  const at::Tensor wanted = weight * 3 * x * x;
  const at::Tensor found = numeric_gradient(x, weight, [&] { return x * x * x; });
  expect_derivative(wanted, found);
  EXPECT_FALSE(near((wanted * 1.01).to(at::kFloat), found.to(at::kFloat), 5e-4));
}

TEST(Harness, EveryTableEndsInAnOracleThatServesEverything) {
  const auto check = []<class Op>(std::type_identity<Op>) {
    const auto table = implementations<Op>();
    ASSERT_FALSE(table.empty());
    EXPECT_EQ(table.back().name, "reference") << Op::kName;
    for (const auto compute : {at::kFloat, at::kBFloat16})
      for (const bool reference_only : {false, true}) {
        const Target target{at::kCPU, compute, reference_only};
        EXPECT_EQ(table.back().refusal(target), "") << Op::kName;
        // Asking for the reference must get it, with everyone else's reason on record.
        std::vector<Choice> choices;
        EXPECT_NE(pick<Op>(target, choices), nullptr);
        if (!reference_only) continue;
        EXPECT_EQ(choices[0].implementation, "reference");
        EXPECT_EQ(choices[0].refused.size(), table.size() - 1);
      }
  };
  check(std::type_identity<Matmul>());
  check(std::type_identity<Fp8Linear>());
  check(std::type_identity<LayerNorm>());
  check(std::type_identity<Gelu>());
  check(std::type_identity<ColumnSum>());
  check(std::type_identity<CrossEntropy>());
  check(std::type_identity<Attention>());
  check(std::type_identity<Embedding>());
  check(std::type_identity<AdamW>());
}

}  // namespace
}  // namespace octavo::engine
