#include "engine/harness.h"

namespace octavo::engine {
namespace {

OCTAVO_OP_TESTS(Embedding);
OCTAVO_OP_GRADIENT_TESTS(Embedding);

struct TokenShape {
  int64_t batch, length, vocab;
};
// Few ids, so that most are repeated, and many, so that most rows stay untouched.
constexpr TokenShape kTokenShapes[] = {{1, 1, 1}, {1, 3, 2}, {3, 11, 5}, {4, 25, 200}};

TEST_P(EmbeddingValues, Forward) {
  for (const int64_t width : kWidths)
    for (const auto& [batch, length, vocab] : kTokenShapes) {
      SCOPED_TRACE(std::to_string(batch * length) + " x " + std::to_string(width));
      const at::Tensor tokens = random({vocab, width}), positions = random({length + 2, width});
      const at::Tensor ids = at::randint(vocab, {batch * length}, at::kInt);
      for (const at::Tensor& p : {positions, at::Tensor()})
        EXPECT_TRUE(
            near(op->forward(ids, tokens, p, length), oracle->forward(ids, tokens, p, length)));
    }
}

TEST_P(EmbeddingValues, Backward) {
  for (const int64_t width : kWidths)
    for (const auto& [batch, length, vocab] : kTokenShapes)
      for (const bool with_positions : {true, false}) {
        SCOPED_TRACE(std::to_string(batch * length) + " x " + std::to_string(width));
        const at::Tensor ids = at::randint(vocab, {batch * length}, at::kInt),
                         dx = random({batch * length, width});
        // It always adds; the rows that no id or position names must stay as they were.
        at::Tensor d_tokens = at::randn({vocab, width}), wanted_tokens = d_tokens.clone();
        at::Tensor d_positions, wanted_positions;
        if (with_positions) {
          d_positions = at::randn({length + 2, width});
          wanted_positions = d_positions.clone();
        }
        const at::Tensor token_parts = magnitude(d_tokens).index_add(0, ids, magnitude(dx));
        op->backward(ids, dx, d_tokens, d_positions, length);
        oracle->backward(ids, dx, wanted_tokens, wanted_positions, length);
        EXPECT_TRUE(near(d_tokens, wanted_tokens, kSumSlack * token_parts));
        if (!with_positions) continue;
        EXPECT_TRUE(near(d_positions, wanted_positions,
                         kSumSlack * (1 + magnitude(dx).sum().item<double>() / 100)));
        EXPECT_TRUE(
            same_bits(d_positions.narrow(0, length, 2), wanted_positions.narrow(0, length, 2)));
      }
}

// Gradients in BF16: a sum of many rows is rounded once, as the oracle's.
TEST_P(EmbeddingValues, BackwardInBf16) {
  for (const int64_t width : kWidths)
    for (const auto& [batch, length, vocab] : kTokenShapes) {
      SCOPED_TRACE(std::to_string(batch * length) + " x " + std::to_string(width));
      const at::Tensor ids = at::randint(vocab, {batch * length}, at::kInt),
                       dx = random({batch * length, width});
      at::Tensor d_tokens = at::randn({vocab, width}).to(at::kBFloat16),
                 d_positions = at::randn({length + 2, width}).to(at::kBFloat16);
      at::Tensor wanted_tokens = d_tokens.clone(), wanted_positions = d_positions.clone();
      const at::Tensor parts = magnitude(d_tokens).index_add(0, ids, magnitude(dx));
      op->backward(ids, dx, d_tokens, d_positions, length);
      oracle->backward(ids, dx, wanted_tokens, wanted_positions, length);
      EXPECT_TRUE(near(d_tokens, wanted_tokens, kSumSlack * parts));
      EXPECT_TRUE(near(d_positions, wanted_positions,
                       kSumSlack * (1 + magnitude(dx).sum().item<double>() / 100)));
    }
}

TEST_P(EmbeddingTest, NanShowsWhereItBelongs) {
  at::Tensor tokens = random({5, 17}), positions = random({3, 17});
  tokens[2][16] = NAN;
  const at::Tensor ids = at::tensor({0, 2, 4}, at::kInt);
  const at::Tensor x = op->forward(ids, tokens, positions, 3);
  EXPECT_EQ(at::isfinite(x).logical_not().sum().item<int64_t>(), 1);
  EXPECT_TRUE(any_not_finite(x[1][16]));
  at::Tensor d_tokens = at::zeros({5, 17}), d_positions = at::zeros({3, 17});
  op->backward(ids, x, d_tokens, d_positions, 3);
  EXPECT_TRUE(any_not_finite(d_tokens[2][16]) && any_not_finite(d_positions[1][16]));
  EXPECT_TRUE(all_finite(d_tokens[0]) && all_finite(d_tokens[4]));
}

TEST_P(EmbeddingTest, IndependentOfThreads) {
  const at::Tensor tokens = random({7, 767}), positions = random({25, 767}),
                   dx = random({100, 767}), ids = at::randint(7, {100}, at::kInt);
  expect_independent_of_threads([&] {
    at::Tensor d_tokens = at::ones({7, 767}), d_positions = at::ones({25, 767});
    at::Tensor low_tokens = d_tokens.to(at::kBFloat16),
               low_positions = d_positions.to(at::kBFloat16);
    op->backward(ids, dx, d_tokens, d_positions, 25);
    op->backward(ids, dx, low_tokens, low_positions, 25);
    return std::vector<at::Tensor>{op->forward(ids, tokens, positions, 25), d_tokens, d_positions,
                                   low_tokens, low_positions};
  });
}

TEST_P(EmbeddingGradient, MatchesFiniteDifferences) {
  at::Tensor tokens = random({4, 5}), positions = random({3, 5});
  const at::Tensor ids = at::tensor({1, 3, 1, 0, 1, 3}, at::kInt), weight = random({6, 5});
  at::Tensor d_tokens = at::zeros({4, 5}), d_positions = at::zeros({3, 5});
  op->backward(ids, weight, d_tokens, d_positions, 3);
  const auto forward = [&] { return op->forward(ids, tokens, positions, 3); };
  expect_derivative(d_tokens, numeric_gradient(tokens, weight, forward));
  expect_derivative(d_positions, numeric_gradient(positions, weight, forward));
}

}  // namespace
}  // namespace octavo::engine
