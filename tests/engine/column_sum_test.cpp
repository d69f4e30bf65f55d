#include "engine/harness.h"

namespace octavo::engine {
namespace {

OCTAVO_OP_TESTS(ColumnSum);
OCTAVO_OP_GRADIENT_TESTS(ColumnSum);

TEST_P(ColumnSumValues, Add) {
  for (const auto& [rows, width] : extents())
    for (const auto mode : kBothModes) {
      SCOPED_TRACE(text_of(Extent{rows, width}));
      const at::Tensor x = random({rows, width});
      at::Tensor sums = at::randn({width}), wanted = sums.clone();
      const at::Tensor slack = kSumSlack * (magnitude(x).sum(0) + sums.abs());
      op->add(x, sums, mode);
      oracle->add(x, wanted, mode);
      EXPECT_TRUE(near(sums, wanted, slack));
    }
}

TEST_P(ColumnSumTest, NanShowsInItsColumnOnly) {
  for (const float bad : {NAN, INFINITY})
    for (const int64_t column : {0, 16}) {
      at::Tensor x = random({33, 17}), sums = at::full({17}, NAN);
      x[32][column] = bad;
      op->add(x, sums, Accumulate::kOverwrite);
      EXPECT_TRUE(any_not_finite(sums[column]));
      EXPECT_EQ(at::isfinite(sums).sum().item<int64_t>(), 16);
    }
}

TEST_P(ColumnSumTest, IndependentOfThreads) {
  const at::Tensor x = random({100, 767});
  expect_independent_of_threads([&] {
    at::Tensor sums = at::ones({767});
    op->add(x, sums, Accumulate::kAdd);
    return std::vector<at::Tensor>{sums};
  });
}

// It is the derivative of adding a bias to every row.
TEST_P(ColumnSumGradient, IsTheGradientOfABias) {
  at::Tensor bias = at::randn({17}), sums = at::empty({17});
  const at::Tensor weight = random({7, 17});
  op->add(weight, sums, Accumulate::kOverwrite);
  expect_derivative(sums, numeric_gradient(bias, weight, [&] {
                      return bias.expand({7, 17}).clone();
                    }));
}

}  // namespace
}  // namespace octavo::engine
