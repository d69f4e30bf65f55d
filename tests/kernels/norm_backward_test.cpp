// Gradients of norms against FP64, the same in every order of blocks and threads.

#include "kernels/norm_backward.h"

#include <gtest/gtest.h>

#include <utility>

#include "kernels/arrays.h"
#include "kernels/host_launch.h"
#include "kernels/kernels.h"

namespace octavo::kernels {
namespace {

struct BackwardCase {
  bool is_layer_norm;
  int64_t rows;
  int32_t columns;
  bool has_d_sum, adds;
  bool frozen = false;
  int shift = 0;
};

struct BackwardResult {
  Array<Bf16> dx;
  Array<float> dgamma, dbeta;
  bool operator==(const BackwardResult&) const = default;
};

struct BackwardProblem {
  BackwardCase of;
  Array<Bf16> sum, d_normed, d_sum, gamma;
  Array<float> mean, rstd, before;

  explicit BackwardProblem(const BackwardCase& c)
      : of(c),
        sum(c.rows * c.columns, c.shift),
        d_normed(c.rows * c.columns, c.shift),
        d_sum(c.rows * c.columns, c.shift),
        gamma(c.columns),
        mean(c.rows),
        rstd(c.rows),
        before(c.columns) {
    Numbers numbers(static_cast<uint64_t>(c.columns + c.rows));
    numbers.fill(sum, 2, 0.5f);
    numbers.fill(d_normed);
    numbers.fill(d_sum);
    numbers.fill(gamma, 0.5f, 1);
    numbers.fill(before, 3);
    for (int64_t r = 0; r < c.rows; ++r) {
      double total = 0, squares = 0;
      for (int64_t i = 0; i < c.columns && c.is_layer_norm; ++i) total += x(r, i);
      const double center = total / c.columns;
      for (int64_t i = 0; i < c.columns; ++i) squares += std::pow(x(r, i) - center, 2);
      mean[r] = static_cast<float>(center);
      rstd[r] = static_cast<float>(1 / std::sqrt(squares / c.columns + 1e-5));
    }
  }
  double x(int64_t r, int64_t c) const { return widened(sum[r * of.columns + c]); }
  double dn(int64_t r, int64_t c) const { return widened(d_normed[r * of.columns + c]); }
  double hat(int64_t r, int64_t c) const { return (x(r, c) - mean[r]) * rstd[r]; }

  BackwardResult run(uint64_t order) const {
    BackwardResult made{Array<Bf16>(sum.size(), of.shift), before, before};
    const Scratch wanted = norm_backward_scratch(of.is_layer_norm, of.rows, of.columns);
    Array<float> parts(wanted.floats);
    Array<uint32_t> tickets(wanted.tickets);
    HostLauncher on{order};
    EXPECT_EQ(launch_norm_backward(on, of.is_layer_norm,
                                   {.d_normed = d_normed.data(),
                                    .d_sum = of.has_d_sum ? d_sum.data() : nullptr,
                                    .sum = sum.data(),
                                    .gamma = gamma.data(),
                                    .mean = of.is_layer_norm ? mean.data() : nullptr,
                                    .rstd = rstd.data(),
                                    .dx = made.dx.data(),
                                    .dgamma = of.frozen ? nullptr : made.dgamma.data(),
                                    .dbeta = of.is_layer_norm ? made.dbeta.data() : nullptr,
                                    .parts = parts.data(),
                                    .tickets = tickets.data(),
                                    .rows = of.rows,
                                    .columns = of.columns,
                                    .adds = of.adds}),
              0);
    EXPECT_EQ(tickets, Array<uint32_t>(wanted.tickets));  // ready for the next launch
    return made;
  }

  void check(const BackwardResult& found) const {
    for (int64_t r = 0; r < of.rows; ++r) {
      double of_hat = 0, shift = 0;
      for (int64_t c = 0; c < of.columns; ++c) {
        of_hat += dn(r, c) * widened(gamma[c]) * hat(r, c) / of.columns;
        if (of.is_layer_norm) shift += dn(r, c) * widened(gamma[c]) / of.columns;
      }
      for (int64_t c = 0; c < of.columns; ++c) {
        const int64_t i = r * of.columns + c;
        const double wanted =
            rstd[r] * (dn(r, c) * widened(gamma[c]) - shift - hat(r, c) * of_hat) +
            (of.has_d_sum ? widened(d_sum[i]) : 0.0f);
        ASSERT_NEAR(widened(found.dx[i]), wanted, 0.501 * bf16_step(wanted) + 1e-5)
            << "row " << r << ", column " << c << " of " << of.columns;
      }
    }
    for (int64_t c = 0; c < of.columns; ++c) {
      double dgamma = of.adds ? before[c] : 0.0f, dbeta = dgamma;
      for (int64_t r = 0; r < of.rows; ++r) {
        dgamma += dn(r, c) * hat(r, c);
        dbeta += dn(r, c);
      }
      ASSERT_NEAR(found.dgamma[c], of.frozen ? double{before[c]} : dgamma, 1e-4) << c;
      ASSERT_NEAR(found.dbeta[c], of.is_layer_norm && !of.frozen ? dbeta : double{before[c]}, 1e-4)
          << c;
    }
  }
};

TEST(NormBackward, is_near_fp64_and_the_same_in_every_order) {
  for (const bool is_layer_norm : {false, true})
    for (const BackwardCase& c :
         std::vector<BackwardCase>{{is_layer_norm, 3, 96, true, false},
                                   {is_layer_norm, 1, 1, false, true},
                                   {is_layer_norm, 17, 7, true, true},
                                   {is_layer_norm, 40, 1000, true, true},
                                   {is_layer_norm, 5, 64, true, false, false, 1},
                                   {is_layer_norm, 5, 2051, false, false},
                                   {is_layer_norm, 4, 4096, true, true},
                                   {is_layer_norm, 3, 5000, true, false},
                                   {is_layer_norm, 4, 64, true, true, true}}) {
      const BackwardProblem problem(c);
      const BackwardResult first = problem.run(0);
      problem.check(first);
      for (const uint64_t order : {2, 5, 9})
        EXPECT_TRUE(problem.run(order) == first) << c.columns << " columns, order " << order;
    }
}

// More rows than blocks, and more blocks than one group has.
TEST(NormBackward, of_many_rows) {
  for (const auto& [rows, columns] :
       std::vector<std::pair<int64_t, int32_t>>{{1100, 16}, {300, 1032}}) {
    const BackwardProblem problem({true, rows, columns, true, true});
    const BackwardResult first = problem.run(0);
    problem.check(first);
    EXPECT_TRUE(problem.run(4) == first);
  }
}

TEST(NormBackward, refuses_rows_that_do_not_fit) {
  HostLauncher on;
  NormBackwardArguments wide{};
  wide.columns = 8193;
  EXPECT_EQ(launch_norm_backward(on, true, wide), kUnsupported);
}

}  // namespace
}  // namespace octavo::kernels
