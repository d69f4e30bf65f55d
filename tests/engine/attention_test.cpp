#include "engine/harness.h"

namespace octavo::engine {
namespace {

OCTAVO_OP_TESTS(Attention);
OCTAVO_OP_GRADIENT_TESTS(Attention);

struct Shape {
  int64_t batch, length, heads, dim;
};
constexpr Shape kShapes[] = {{1, 1, 1, 1},    {2, 3, 2, 7},    {1, 7, 3, 16},   {3, 17, 2, 17},
                             {2, 33, 1, 64},  {1, 64, 12, 64}, {2, 100, 2, 40}, {1, 127, 1, 128},
                             {1, 257, 2, 64}, {1, 600, 1, 64}};

std::string text_of(const Shape& s) {
  return std::to_string(s.batch) + " x " + std::to_string(s.length) + ", " +
         std::to_string(s.heads) + " heads of " + std::to_string(s.dim);
}

// The magnitudes that each result is a sum of, per row of qkv (FP64).
struct Magnitudes {
  at::Tensor out, d_qkv;
};
Magnitudes magnitudes(const at::Tensor& qkv, const at::Tensor& d_out, const Shape& s) {
  const auto heads =
      exact(qkv).view({s.batch, s.length, 3, s.heads, s.dim}).permute({2, 0, 3, 1, 4});
  const at::Tensor q = heads[0], k = heads[1], v = heads[2].abs();
  const double scale = 1 / std::sqrt(static_cast<double>(s.dim));
  const at::Tensor mask = at::ones({s.length, s.length}, at::kDouble).triu(1).to(at::kBool);
  const at::Tensor score = at::matmul(q, k.transpose(2, 3)) * scale;
  const at::Tensor p = score.masked_fill(mask, -INFINITY).softmax(-1);
  const at::Tensor go = magnitude(d_out).view({s.batch, s.length, s.heads, s.dim}).transpose(1, 2);
  const at::Tensor dp = at::matmul(go, v.transpose(2, 3));
  const at::Tensor ds = p * (dp + (dp * p).sum(-1, true)) * scale;
  const at::Tensor dq = at::matmul(ds, k.abs()), dk = at::matmul(ds.transpose(2, 3), q.abs()),
                   dv = at::matmul(p.transpose(2, 3), go);
  return {at::matmul(p, v).transpose(1, 2).reshape(d_out.sizes()),
          at::stack({dq, dk, dv}).permute({1, 3, 0, 2, 4}).reshape(qkv.sizes())};
}

// In BF16 an implementation may round the probabilities and their gradient to BF16 (2^-9 of each)
// before the next product, and the saved output too: up to four roundings for the gradients, of
// which two at most are in one direction. In FP32 the exponential of a score of up to 10 loses
// 10 x 2^-24.
double slack_of(at::ScalarType compute, bool backward) {
  if (compute == at::kBFloat16) return backward ? 0x1p-7 : 0x1p-8;
  return 3e-6;
}

TEST_P(AttentionValues, ForwardAndBackward) {
  for (const Shape& s : kShapes) {
    SCOPED_TRACE(text_of(s));
    const int64_t rows = s.batch * s.length, width = s.heads * s.dim;
    const at::Tensor qkv = random({rows, 3 * width}), d_out = random({rows, width});
    const Magnitudes parts = magnitudes(qkv, d_out, s);
    const auto found = op->forward(qkv, s.batch, s.heads);
    const auto wanted = oracle->forward(qkv, s.batch, s.heads);
    EXPECT_TRUE(near(found.out, wanted.out, slack_of(compute, false) * parts.out));
    const at::Tensor d_qkv = op->backward(d_out, qkv, found, s.batch, s.heads);
    const at::Tensor wanted_d_qkv = oracle->backward(d_out, qkv, wanted, s.batch, s.heads);
    EXPECT_TRUE(near(d_qkv, wanted_d_qkv, slack_of(compute, true) * parts.d_qkv));
  }
}

// The first row of a sequence sees itself only; a later row cannot change an earlier one.
TEST_P(AttentionTest, IsCausalAndKeepsSequencesApart) {
  constexpr Shape kShape{2, 100, 2, 16};
  at::Tensor qkv = random({200, 96});
  const at::Tensor before = op->forward(qkv, 2, 2).out;
  for (const int64_t start : {0, 100})
    EXPECT_TRUE(same_bits(before[start], qkv[start].narrow(0, 64, 32))) << text_of(kShape);
  qkv.narrow(0, 60, 40).fill_(3);
  const at::Tensor after = op->forward(qkv, 2, 2).out;
  EXPECT_TRUE(near(after.narrow(0, 0, 60), before.narrow(0, 0, 60), 1e-6));
  EXPECT_TRUE(same_bits(after.narrow(0, 100, 100), before.narrow(0, 100, 100)));
  EXPECT_GT((after - before).narrow(0, 60, 40).abs().min().item<float>(), 0);
}

TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  const at::Tensor qkv = random({64, 192}, 60), d_out = random({64, 64});
  const auto forward = op->forward(qkv, 1, 1);
  EXPECT_TRUE(all_finite(forward.out));
  EXPECT_TRUE(all_finite(op->backward(d_out, qkv, forward, 1, 1)));
}

TEST_P(AttentionTest, NanShows) {
  // A row's query reaches that row, its key and value also every later one (and a value earlier
  // ones too where 0 x NaN is computed).
  for (const int64_t part : {0, 1, 2}) {
    at::Tensor qkv = random({40, 48});
    qkv[20][part * 16 + 5] = NAN;
    const auto forward = op->forward(qkv, 1, 1);
    EXPECT_TRUE(any_not_finite(forward.out[20])) << part;
    if (part > 0) {
      EXPECT_TRUE(any_not_finite(forward.out[39])) << part;
    }
    if (part < 2) EXPECT_TRUE(all_finite(forward.out.narrow(0, 0, 20))) << part;
    EXPECT_TRUE(any_not_finite(op->backward(random({40, 16}), qkv, forward, 1, 1))) << part;
  }
}

TEST_P(AttentionTest, TwiceTheSame) {
  const at::Tensor qkv = random({200, 192}), d_out = random({200, 64});
  const auto a = op->forward(qkv, 2, 4), b = op->forward(qkv, 2, 4);
  EXPECT_TRUE(same_bits(a.out, b.out));
  EXPECT_TRUE(same_bits(op->backward(d_out, qkv, a, 2, 4), op->backward(d_out, qkv, b, 2, 4)));
}

TEST_P(AttentionGradient, MatchesFiniteDifferences) {
  at::Tensor qkv = random({10, 18});
  const at::Tensor weight = random({10, 6});
  const at::Tensor d_qkv = op->backward(weight, qkv, op->forward(qkv, 2, 2), 2, 2);
  expect_derivative(
      d_qkv, numeric_gradient(qkv, weight, [&] { return op->forward(qkv, 2, 2).out.clone(); }));
}

}  // namespace
}  // namespace octavo::engine
