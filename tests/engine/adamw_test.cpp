#include "engine/harness.h"

namespace octavo::engine {
namespace {

OCTAVO_OP_TESTS(AdamW);

constexpr int64_t kSizes[] = {1, 7, 16, 17, 127, 3072, 65536 + 17};

struct State {
  at::Tensor master, m, v, compute;
  State clone() const {
    return {master.clone(), m.clone(), v.clone(), compute.defined() ? compute.clone() : compute};
  }
};

State random_state(int64_t n, bool with_copy) {
  return {at::randn({n}), at::randn({n}) * 0.1, at::randn({n}).square() * 0.01,
          with_copy ? at::zeros({n}, at::kBFloat16) : at::Tensor()};
}

constexpr AdamW::Hyper kHypers[] = {
    {.lr = 1e-2f, .weight_decay = 0.1f, .step = 1, .grad_scale = 0.25f},
    {.lr = 6e-4f, .beta1 = 0.8f, .beta2 = 0.999f, .eps = 1e-6f, .step = 7},
    {.lr = 1e-3f, .weight_decay = 0.01f, .step = 100'000}};

TEST_P(AdamWValues, Step) {
  for (const int64_t n : kSizes)
    for (const auto& hyper : kHypers)
      for (const bool with_copy : {true, false}) {
        SCOPED_TRACE(std::to_string(n) + " values, step " + std::to_string(hyper.step));
        const State before = random_state(n, with_copy);
        const at::Tensor grad = at::randn({n}) * 0.3;
        State found = before.clone(), wanted = before.clone();
        op->step(found.master, found.m, found.v, grad, found.compute, hyper);
        oracle->step(wanted.master, wanted.m, wanted.v, grad, wanted.compute, hyper);
        const at::Tensor g = magnitude(grad) * hyper.grad_scale;
        EXPECT_TRUE(near(found.m, wanted.m, 0x1p-23 * (magnitude(before.m) + g)));
        EXPECT_TRUE(near(found.v, wanted.v, 0x1p-22 * (magnitude(before.v) + g * g)));
        // The step itself to six digits; m may have cancelled, so its own slack counts too.
        const double c2 = 1 - std::pow(static_cast<double>(hyper.beta2), hyper.step),
                     c1 = 1 - std::pow(static_cast<double>(hyper.beta1), hyper.step);
        const at::Tensor size =
            hyper.lr / c1 * (magnitude(before.m) + g) / ((exact(wanted.v) / c2).sqrt() + hyper.eps);
        EXPECT_TRUE(
            near(found.master, wanted.master, 1e-6 * size + 0x1p-23 * magnitude(before.master)));
        if (with_copy) EXPECT_TRUE(same_bits(found.compute, found.master.to(at::kBFloat16)));
      }
}

TEST_P(AdamWValues, SumOfSquares) {
  for (const int64_t n : kSizes)
    for (const double scale : {1e-8, 1.0, 1e8}) {
      const at::Tensor grad = at::randn({n}) * scale;
      const double wanted = oracle->sum_of_squares(grad);
      EXPECT_NEAR(op->sum_of_squares(grad) / wanted, 1, 2e-6) << n << " x " << scale;
    }
}

TEST_P(AdamWTest, ZeroGradientOnlyDecays) {
  State s{at::randn({33}), at::zeros({33}), at::zeros({33}), at::zeros({33}, at::kBFloat16)};
  const at::Tensor before = s.master.clone();
  op->step(s.master, s.m, s.v, at::zeros({33}), s.compute, {.lr = 0.1f, .weight_decay = 0.5f});
  EXPECT_TRUE(near(s.master, before * 0.95f, 1e-7));
  EXPECT_EQ(s.m.count_nonzero().item<int64_t>() + s.v.count_nonzero().item<int64_t>(), 0);
}

TEST_P(AdamWTest, NotFiniteShows) {
  for (const float bad : {NAN, INFINITY})
    for (const int64_t place : {0, 16, 69'999}) {
      at::Tensor grad = at::randn({70'000});
      grad[place] = bad;
      EXPECT_FALSE(std::isfinite(op->sum_of_squares(grad))) << bad << " at " << place;
      State s = random_state(70'000, true);
      op->step(s.master, s.m, s.v, grad, s.compute, {.lr = 0.1f});
      EXPECT_TRUE(any_not_finite(s.master[place]) && any_not_finite(s.compute[place])) << bad;
      EXPECT_EQ(at::isfinite(s.master).sum().item<int64_t>(), 69'999);
    }
}

TEST_P(AdamWTest, IndependentOfThreads) {
  const State before = random_state(200'003, true);
  const at::Tensor grad = at::randn({200'003});
  expect_independent_of_threads([&] {
    State s = before.clone();
    op->step(s.master, s.m, s.v, grad, s.compute, {.lr = 0.1f, .weight_decay = 0.1f, .step = 3});
    const at::Tensor squares = at::scalar_tensor(op->sum_of_squares(grad), at::kDouble);
    return std::vector<at::Tensor>{s.master, s.m, s.v, s.compute, squares};
  });
}

}  // namespace
}  // namespace octavo::engine
