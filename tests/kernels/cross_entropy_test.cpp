// Cross-entropy against FP64.

#include "kernels/cross_entropy.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/arrays.h"
#include "kernels/host_launch.h"
#include "kernels/kernels.h"

namespace octavo::kernels {
namespace {

struct LossCase {
  int64_t rows;
  int32_t columns, classes;
  float spread, z_weight;
  int shift;
};

struct LossResult {
  Array<Bf16> logits;
  LossSums total;
  bool operator==(const LossResult& o) const {
    return logits == o.logits && total.nll == o.total.nll && total.z == o.total.z;
  }
};

struct LossProblem {
  LossCase of;
  Array<Bf16> logits;
  Array<int32_t> targets;
  float grad_scale = 0.25f;

  explicit LossProblem(const LossCase& c)
      : of(c), logits(c.rows * c.columns, c.shift), targets(c.rows) {
    Numbers numbers(static_cast<uint64_t>(c.columns));
    numbers.fill(logits, c.spread, 3);
    for (int64_t r = 0; r < c.rows; ++r) {
      targets[r] = static_cast<int32_t>(numbers.bits() % static_cast<uint32_t>(c.classes));
      // Padding would win if it were looked at.
      for (int64_t i = c.classes; i < c.columns; ++i) logits[r * c.columns + i] = 0x7F00;
    }
    if (c.rows > 2) targets[1] = -1;
    if (c.rows > 3) targets[3] = c.classes - 1;
  }

  LossResult run(uint64_t order, bool want_gradient = true) const {
    LossResult result{logits, {-1, -1}};
    Array<LossSums> of_rows(of.rows);
    HostLauncher on{order};
    EXPECT_EQ(launch_cross_entropy(on,
                                   {.logits = result.logits.data(),
                                    .targets = targets.data(),
                                    .of_rows = of_rows.data(),
                                    .rows = of.rows,
                                    .columns = of.columns,
                                    .classes = of.classes,
                                    .grad_scale = grad_scale,
                                    .z_weight = of.z_weight,
                                    .want_gradient = want_gradient},
                                   &result.total),
              0);
    return result;
  }

  // In FP64.
  double lse(int64_t row) const {
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t i = 0; i < of.classes; ++i)
      largest = std::max(largest, double{widened(logits[row * of.columns + i])});
    for (int64_t i = 0; i < of.classes; ++i)
      sum += std::exp(widened(logits[row * of.columns + i]) - largest);
    return largest + std::log(sum);
  }
  void check(const LossResult& found) const {
    double nll = 0, z = 0;
    for (int64_t r = 0; r < of.rows; ++r) {
      const bool counts = targets[r] >= 0;
      const double of_row = lse(r);
      if (counts) nll += of_row - widened(logits[r * of.columns + targets[r]]);
      if (counts) z += of_row * of_row;
      for (int64_t i = 0; i < of.columns; ++i) {
        const double p = std::exp(widened(logits[r * of.columns + i]) - of_row);
        const double onehot = i == targets[r] ? 1 : 0;
        const double wanted = counts && i < of.classes
                                  ? (p * (1 + 2 * of.z_weight * of_row) - onehot) * grad_scale
                                  : 0;
        // Half a step of BF16, and of the FP32 terms that cancel at the target.
        ASSERT_NEAR(widened(found.logits[r * of.columns + i]), wanted,
                    0.51 * bf16_step(wanted) + 2e-6 * grad_scale * onehot + 1e-5 * std::abs(wanted))
            << "row " << r << ", column " << i << " of " << of.columns;
      }
    }
    EXPECT_NEAR(found.total.nll, nll, 1e-6 * (std::abs(nll) + static_cast<double>(of.rows)));
    EXPECT_NEAR(found.total.z, z, 1e-6 * (z + 1));
  }
};

TEST(CrossEntropy, is_near_fp64_and_the_same_in_every_order) {
  for (const LossCase& c : std::vector<LossCase>{{5, 40, 37, 2, 0, 0},
                                                 {4, 2051, 2051, 3, 1e-2f, 0},
                                                 {4, 6000, 5000, 20, 0, 0},
                                                 {1, 1, 1, 1, 0, 0},
                                                 {300, 8, 8, 1, 1e-3f, 0},
                                                 {4, 64, 60, 2, 0, 1}}) {
    const LossProblem problem(c);
    const LossResult first = problem.run(0);
    problem.check(first);
    if (c.rows > 100) continue;  // its time is in its blocks
    for (const uint64_t order : kOrders)
      EXPECT_TRUE(problem.run(order) == first) << "order " << order;
  }
}

TEST(CrossEntropy, leaves_the_logits_when_no_gradient_is_wanted) {
  const LossProblem problem({4, 50, 45, 2, 1e-2f, 0});
  const LossResult with = problem.run(1), without = problem.run(1, false);
  EXPECT_TRUE(without.logits == problem.logits);
  EXPECT_EQ(with.total.nll, without.total.nll);
  EXPECT_EQ(with.total.z, without.total.z);
}

TEST(CrossEntropy, a_nan_shows_in_the_loss) {
  for (const int64_t at : {int64_t{0}, int64_t{2500}, int64_t{4999}}) {
    LossProblem problem({1, 5000, 5000, 2, 0, 0});
    problem.logits[at] = 0x7FC0;
    EXPECT_TRUE(std::isnan(problem.run(0).total.nll)) << at;
    problem.logits[at] = 0x7F80;  // infinity
    EXPECT_FALSE(std::isfinite(problem.run(0).total.nll)) << at;
  }
}

}  // namespace
}  // namespace octavo::kernels
