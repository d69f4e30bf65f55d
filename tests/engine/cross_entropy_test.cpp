#include "engine/harness.h"

namespace octavo::engine {
namespace {

OCTAVO_OP_TESTS(CrossEntropy);
OCTAVO_OP_GRADIENT_TESTS(CrossEntropy);

// Every fourth target is an ignored one.
at::Tensor targets_for(int64_t rows, int64_t classes) {
  at::Tensor targets = at::randint(classes, {rows}, at::kInt);
  for (int64_t r = 3; r < rows; r += 4) targets[r] = r % 8 == 3 ? -1 : -100;
  return targets;
}

// exp(x - max) has the rounding of its argument (2^-24 of |x - max| <= 20 here) and of itself.
constexpr double kExpSlack = 3e-6;

struct Setting {
  int64_t padding;
  float grad_scale, z_weight;
};
constexpr Setting kSettings[] = {{0, 1, 0}, {5, 0.37f, 0}, {64, 1.0f / 4096, 1e-2f}};

TEST_P(CrossEntropyValues, LossAndGradient) {
  for (const auto& [rows, classes] : extents())
    for (const auto& [padding, grad_scale, z_weight] : kSettings) {
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(classes) + " + " +
                   std::to_string(padding));
      const at::Tensor logits = random({rows, classes + padding}, 3);
      const at::Tensor targets = targets_for(rows, classes);
      const CrossEntropy::Options options{classes, grad_scale, z_weight, true};
      at::Tensor found = logits.clone(), wanted = logits.clone();
      const at::Tensor sums = op->run(found, targets, options);
      const at::Tensor wanted_sums = oracle->run(wanted, targets, options);

      const at::Tensor valid = exact(logits.narrow(1, 0, classes)), lse = valid.logsumexp(1);
      const at::Tensor counted = exact(targets >= 0);
      const at::Tensor each = kExpSlack * (1 + lse.abs()) * counted;
      EXPECT_EQ(sums.scalar_type(), at::kDouble);
      EXPECT_TRUE(near(sums.to(at::kFloat), wanted_sums.to(at::kFloat),
                       at::stack({each.sum(), (2 * lse.abs() * each).sum()})));
      at::Tensor slack = (valid - lse.unsqueeze(1)).exp() *
                         (1 + 2 * z_weight * lse.abs()).unsqueeze(1) * kExpSlack;
      slack.scatter_add_(1, targets.clamp_min(0).to(at::kLong).unsqueeze(1),
                         at::full({rows, 1}, kExpSlack, at::kDouble));
      EXPECT_TRUE(
          near(found.narrow(1, 0, classes), wanted.narrow(1, 0, classes), slack * grad_scale));
      EXPECT_EQ(found.narrow(1, classes, padding).count_nonzero().item<int64_t>(), 0);
      EXPECT_EQ((found * (targets < 0).unsqueeze(1)).count_nonzero().item<int64_t>(), 0);
    }
}

// Into a part of a larger tensor, as a chunk of a batch is. The sums stay what they are without it.
TEST_P(CrossEntropyTest, OfEachToken) {
  constexpr int64_t kRows = 33, kClasses = 100;
  const at::Tensor logits = random({kRows, 127}, 3), targets = targets_for(kRows, kClasses);
  for (const bool want_gradient : {true, false}) {
    at::Tensor place = at::full({kRows + 2, 2}, -7, at::kDouble), plain = logits.clone(),
               found = logits.clone();
    CrossEntropy::Options options{kClasses, 0.37f, 1e-2f, want_gradient};
    const at::Tensor alone = op->run(plain, targets, options);
    options.each = place.narrow(0, 1, kRows);
    const at::Tensor sums = op->run(found, targets, options);
    EXPECT_TRUE(same_bits(sums, alone));
    EXPECT_TRUE(same_bits(found, plain));
    EXPECT_EQ(place[0].eq(-7).sum().item<int64_t>() + place[kRows + 1].eq(-7).sum().item<int64_t>(),
              4);
    EXPECT_TRUE(at::allclose(options.each.sum(0), sums, 1e-12, 0));
    const at::Tensor valid = exact(logits.narrow(1, 0, kClasses)), lse = valid.logsumexp(1);
    const at::Tensor ids = targets.clamp_min(0).to(at::kLong).unsqueeze(1);
    const at::Tensor nll = lse - valid.gather(1, ids).squeeze(1);
    const at::Tensor wanted =
        at::stack({nll, lse.square()}, 1).masked_fill_((targets < 0).unsqueeze(1), 0);
    EXPECT_TRUE(at::allclose(options.each, wanted, 1e-5, 1e-5));
    EXPECT_EQ(options.each.index({targets < 0}).count_nonzero().item<int64_t>(), 0);
  }
}

TEST_P(CrossEntropyTest, WithoutGradientLogitsStay) {
  const at::Tensor logits = random({33, 127}, 3), targets = targets_for(33, 100);
  CrossEntropy::Options options{100, 1, 0.1f, true};
  at::Tensor changed = logits.clone(), kept = logits.clone();
  const at::Tensor with = op->run(changed, targets, options);
  options.want_gradient = false;
  const at::Tensor without = op->run(kept, targets, options);
  EXPECT_TRUE(same_bits(kept, logits));
  EXPECT_TRUE(same_bits(with, without));
}

TEST_P(CrossEntropyTest, AllIgnored) {
  at::Tensor logits = random({3, 17});
  const at::Tensor sums = op->run(logits, at::full({3}, -1, at::kInt), {17, 1, 1, true});
  EXPECT_EQ(sums.count_nonzero().item<int64_t>(), 0);
  EXPECT_EQ(logits.count_nonzero().item<int64_t>(), 0);
}

TEST_P(CrossEntropyTest, PaddingIsNeverRead) {
  const at::Tensor logits = random({3, 24}, 3), targets = targets_for(3, 17);
  at::Tensor clean = logits.clone(), dirty = logits.clone();
  clean.narrow(1, 17, 7).zero_();
  dirty.narrow(1, 17, 7).fill_(NAN);
  const at::Tensor a = op->run(clean, targets, {17, 1, 0.1f, true}),
                   b = op->run(dirty, targets, {17, 1, 0.1f, true});
  EXPECT_TRUE(same_bits(a, b));
  EXPECT_TRUE(same_bits(clean, dirty));
}

TEST_P(CrossEntropyTest, EqualLogitsAndLargeOnes) {
  for (const double level : {0.0, 3e4, -3e4}) {
    at::Tensor logits = at::full({1, 64}, level, compute);
    const double lse = logits[0][0].item<double>() + std::log(64);
    const at::Tensor sums = op->run(logits, at::tensor({5}, at::kInt), {64, 1, 0, true});
    EXPECT_NEAR(sums[0].item<double>(), std::log(64), 2e-3 + 1e-7 * std::abs(level));
    EXPECT_NEAR(sums[1].item<double>() / (lse * lse), 1, 1e-6);
    EXPECT_EQ(logits[0][0].item<float>(), 1.0f / 64);
    EXPECT_EQ(logits[0][5].item<float>(), 1.0f / 64 - 1);
  }
}

// A class with minus infinity is impossible; any other value that is not finite must show in the
// loss, wherever in the row it stands.
TEST_P(CrossEntropyTest, NotFinite) {
  for (const int64_t column : {0, 15, 16, 126}) {
    const at::Tensor logits = random({3, 127}, 3), targets = at::tensor({1, 2, 3}, at::kInt);
    for (const float bad : {NAN, INFINITY}) {
      at::Tensor changed = logits.clone();
      changed[1][column] = bad;
      const at::Tensor sums = op->run(changed, targets, {127, 1, 0, true});
      EXPECT_TRUE(any_not_finite(sums[0])) << bad << " at " << column;
      EXPECT_TRUE(any_not_finite(changed[1])) << bad << " at " << column;
      EXPECT_TRUE(all_finite(changed[0]) && all_finite(changed[2]));
    }
    at::Tensor changed = logits.clone();
    changed[1][column] = -INFINITY;
    EXPECT_TRUE(all_finite(op->run(changed, targets, {127, 1, 0, true})));
    EXPECT_EQ(changed[1][column].item<float>(), 0);
  }
}

TEST_P(CrossEntropyTest, IndependentOfThreads) {
  const at::Tensor logits = random({100, 767}, 3), targets = targets_for(100, 760);
  expect_independent_of_threads([&] {
    at::Tensor gradient = logits.clone();
    const at::Tensor sums = op->run(gradient, targets, {760, 0.1f, 0.1f, true});
    return std::vector<at::Tensor>{sums, gradient};
  });
}

TEST_P(CrossEntropyGradient, MatchesFiniteDifferences) {
  for (const float z_weight : {0.0f, 0.3f}) {
    at::Tensor logits = random({5, 24}, 2);
    const at::Tensor targets = targets_for(5, 17);
    CrossEntropy::Options options{17, 0.5f, z_weight, true};
    at::Tensor gradient = logits.clone();
    op->run(gradient, targets, options);
    options.want_gradient = false;
    const at::Tensor weight = at::tensor({0.5, 0.5 * z_weight}, at::kDouble);
    expect_derivative(gradient, numeric_gradient(logits, weight, [&] {
                        return op->run(logits, targets, options);
                      }));
  }
}

}  // namespace
}  // namespace octavo::engine
