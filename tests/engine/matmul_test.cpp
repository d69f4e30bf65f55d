#include "engine/harness.h"

namespace octavo::engine {
namespace {

OCTAVO_OP_TESTS(Matmul);
OCTAVO_OP_GRADIENT_TESTS(Matmul);

struct Shape {
  int64_t rows, in, out;
};

// Every width once as input and once as output for each number of rows; the largest meet once.
std::vector<Shape> shapes() {
  std::vector<Shape> result;
  constexpr size_t kCount = std::size(kWidths);
  size_t shift = 1;
  for (const int64_t rows : kRows) {
    for (size_t i = 0; i < kCount; ++i)
      result.push_back({rows, kWidths[i], kWidths[(i + shift) % kCount]});
    ++shift;
  }
  return result;
}

std::string text_of(const Shape& s) {
  return std::to_string(s.rows) + " x " + std::to_string(s.in) + " -> " + std::to_string(s.out);
}

TEST_P(MatmulValues, Forward) {
  for (const Shape& s : shapes()) {
    SCOPED_TRACE(text_of(s));
    const at::Tensor x = random({s.rows, s.in}), w = random({s.out, s.in}), b = at::randn({s.out});
    for (const bool biased : {false, true}) {
      at::Tensor y = random({s.rows, s.out}), wanted = at::empty_like(y);
      const at::Tensor bias = biased ? b : at::Tensor();
      op->forward(x, w, bias, y);
      oracle->forward(x, w, bias, wanted);
      at::Tensor slack = kSumSlack * at::mm(magnitude(x), magnitude(w).t());
      if (biased) slack += kSumSlack * magnitude(b);
      EXPECT_TRUE(near(y, wanted, slack)) << (biased ? "with bias" : "without bias");
    }
  }
}

TEST_P(MatmulValues, InputGradient) {
  for (const Shape& s : shapes()) {
    SCOPED_TRACE(text_of(s));
    const at::Tensor dy = random({s.rows, s.out}), w = random({s.out, s.in});
    at::Tensor dx = random({s.rows, s.in}), wanted = at::empty_like(dx);
    op->input_gradient(dy, w, dx);
    oracle->input_gradient(dy, w, wanted);
    EXPECT_TRUE(near(dx, wanted, kSumSlack * at::mm(magnitude(dy), magnitude(w))));
  }
}

// The result is FP32 whatever the operands are: sums of BF16 GEMMs must not be rounded to BF16.
TEST_P(MatmulValues, WeightGradient) {
  for (const Shape& s : shapes())
    for (const auto mode : kBothModes) {
      SCOPED_TRACE(text_of(s) + (mode == Accumulate::kAdd ? ", add" : ", overwrite"));
      const at::Tensor dy = random({s.rows, s.out}), x = random({s.rows, s.in});
      at::Tensor dw = at::randn({s.out, s.in}), wanted = dw.clone();
      const at::Tensor slack = kSumSlack * (at::mm(magnitude(dy).t(), magnitude(x)) + dw.abs());
      op->weight_gradient(dy, x, dw, mode);
      oracle->weight_gradient(dy, x, wanted, mode);
      EXPECT_TRUE(near(dw, wanted, slack));
    }
}

// Into BF16: one rounding of the FP32 sum, also when added to what is there.
TEST_P(MatmulValues, WeightGradientInBf16) {
  if (compute != at::kBFloat16) GTEST_SKIP() << "only where GEMMs are BF16";
  for (const Shape& s : shapes())
    for (const auto mode : kBothModes) {
      SCOPED_TRACE(text_of(s) + (mode == Accumulate::kAdd ? ", add" : ", overwrite"));
      const at::Tensor dy = random({s.rows, s.out}), x = random({s.rows, s.in});
      at::Tensor dw = random({s.out, s.in}), wanted = dw.clone();
      const at::Tensor slack =
          kSumSlack * (at::mm(magnitude(dy).t(), magnitude(x)) + magnitude(dw));
      op->weight_gradient(dy, x, dw, mode);
      oracle->weight_gradient(dy, x, wanted, mode);
      EXPECT_TRUE(near(dw, wanted, slack));
    }
}

// What was in the memory before must not matter when it is overwritten.
TEST_P(MatmulTest, OverwritesGarbage) {
  const at::Tensor x = random({3, 17}), w = random({7, 17}), dy = random({3, 7});
  at::Tensor y = at::full({3, 7}, NAN, x.options()), dx = at::full({3, 17}, NAN, x.options());
  at::Tensor dw = at::full({7, 17}, NAN);
  op->forward(x, w, at::Tensor(), y);
  op->input_gradient(dy, w, dx);
  op->weight_gradient(dy, x, dw, Accumulate::kOverwrite);
  EXPECT_TRUE(all_finite(y) && all_finite(dx) && all_finite(dw));
}

TEST_P(MatmulTest, ZerosGiveZerosAndNanShows) {
  at::Tensor x = at::zeros({3, 17}, compute), w = random({7, 17}), y = random({3, 7});
  op->forward(x, w, at::Tensor(), y);
  EXPECT_EQ(y.abs().sum().item<float>(), 0);
  for (const float bad : {NAN, INFINITY}) {
    x[1][16] = bad;
    op->forward(x, w, at::Tensor(), y);
    EXPECT_TRUE(any_not_finite(y[1]) && all_finite(y[0]) && all_finite(y[2])) << bad;
    at::Tensor dw = at::zeros({7, 17});
    op->weight_gradient(random({3, 7}), x, dw, Accumulate::kAdd);
    EXPECT_TRUE(any_not_finite(dw.select(1, 16)) && all_finite(dw.narrow(1, 0, 16))) << bad;
  }
}

TEST_P(MatmulTest, TwiceTheSame) {
  const at::Tensor x = random({100, 768}), w = random({127, 768}), dy = random({100, 127});
  at::Tensor y[2], dw[2];
  for (int i = 0; i < 2; ++i) {
    y[i] = at::empty({100, 127}, x.options());
    dw[i] = at::empty({127, 768});
    op->forward(x, w, at::Tensor(), y[i]);
    op->weight_gradient(dy, x, dw[i], Accumulate::kOverwrite);
  }
  EXPECT_TRUE(same_bits(y[0], y[1]));
  EXPECT_TRUE(same_bits(dw[0], dw[1]));
}

TEST_P(MatmulGradient, MatchesFiniteDifferences) {
  at::Tensor x = random({3, 7}), w = random({5, 7});
  const at::Tensor bias = at::randn({5}), dy = random({3, 5});
  const auto forward = [&] {
    at::Tensor y = at::empty({3, 5});
    op->forward(x, w, bias, y);
    return y;
  };
  at::Tensor dx = at::empty_like(x), dw = at::empty_like(w);
  op->input_gradient(dy, w, dx);
  op->weight_gradient(dy, x, dw, Accumulate::kOverwrite);
  expect_derivative(dx, numeric_gradient(x, dy, forward));
  expect_derivative(dw, numeric_gradient(w, dy, forward));
}

}  // namespace
}  // namespace octavo::engine
