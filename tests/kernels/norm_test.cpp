// Residual addition and norms: the sum, the codes and the largest magnitude bit for bit, the rest
// against FP64.

#include "kernels/norm.h"

#include <gtest/gtest.h>

#include "kernels/arrays.h"
#include "kernels/host_launch.h"
#include "kernels/kernels.h"

namespace octavo::kernels {
namespace {

TEST(Fp8Encode, is_the_reference_for_every_bf16_and_many_floats) {
  const auto check = [](float value) {
    ASSERT_EQ(encode_nearest<fp8::Format::kE4M3>(value), fp8::encode(fp8::Format::kE4M3, value))
        << value;
    ASSERT_EQ(encode_nearest<fp8::Format::kE5M2>(value), fp8::encode(fp8::Format::kE5M2, value))
        << value;
  };
  for (uint32_t bits = 0; bits < 65536; ++bits)
    for (const uint32_t low : {0u, 1u, 0x8000u, 0xFFFFu})
      check(std::bit_cast<float>(bits << 16 | low));
  Numbers numbers(5);
  for (int i = 0; i < 200000; ++i) check(std::bit_cast<float>(numbers.bits()));
}

struct NormCase {
  bool is_layer_norm;
  int64_t rows;
  int32_t columns;
  bool has_delta, quantizes;
  float mean;
  int shift;
  bool transposes = false;  // and does not write the normed values
};

struct NormResult {
  Array<Bf16> sum, normed;
  Array<float> mean, rstd;
  Array<uint8_t> codes, column_codes;
  uint32_t amax = 0;
  float inverse = 0;
  bool operator==(const NormResult&) const = default;
};

struct NormProblem {
  NormCase of;
  Array<Bf16> x, delta, gamma, beta;
  float scale = 3.5f, eps = 1e-2f;

  explicit NormProblem(const NormCase& c)
      : of(c),
        x(c.rows * c.columns, c.shift),
        delta(c.rows * c.columns, c.shift),
        gamma(c.columns),
        beta(c.columns) {
    Numbers numbers(static_cast<uint64_t>(c.columns));
    numbers.fill(x, 1, c.mean);
    numbers.fill(delta, 0.3f);
    numbers.fill(gamma, 0.5f, 1);
    numbers.fill(beta, 0.5f);
  }

  NormResult run(uint64_t order) const {
    NormResult r{Array<Bf16>(x.size(), of.shift),
                 Array<Bf16>(x.size(), of.shift),
                 Array<float>(of.rows),
                 Array<float>(of.rows),
                 Array<uint8_t>(x.size()),
                 Array<uint8_t>(x.size()),
                 1};
    HostLauncher on{order};
    EXPECT_EQ(launch_norm(on, of.is_layer_norm,
                          {.x = x.data(),
                           .delta = of.has_delta ? delta.data() : nullptr,
                           .gamma = gamma.data(),
                           .beta = of.is_layer_norm ? beta.data() : nullptr,
                           .sum = of.has_delta ? r.sum.data() : nullptr,
                           .normed = of.transposes ? nullptr : r.normed.data(),
                           .mean = of.is_layer_norm ? r.mean.data() : nullptr,
                           .rstd = r.rstd.data(),
                           .codes = of.quantizes ? r.codes.data() : nullptr,
                           .column_codes = of.transposes ? r.column_codes.data() : nullptr,
                           .scale = of.quantizes ? &scale : nullptr,
                           .inverse = of.quantizes ? &r.inverse : nullptr,
                           .amax = of.quantizes ? &r.amax : nullptr,
                           .rows = of.rows,
                           .columns = of.columns,
                           .eps = eps}),
              0);
    return r;
  }

  void check(const NormResult& found) const {
    const auto sum = [&](int64_t i) {
      return of.has_delta ? widened(nearest_bf16(widened(x[i]) + widened(delta[i])))
                          : widened(x[i]);
    };
    float largest = std::bit_cast<float>(1u);
    for (int64_t r = 0; r < of.rows; ++r) {
      double mean = 0, squares = 0;
      const int64_t start = r * of.columns;
      for (int64_t c = 0; c < of.columns && of.is_layer_norm; ++c)
        mean += sum(start + c) / double{static_cast<double>(of.columns)};
      for (int64_t c = 0; c < of.columns; ++c) squares += std::pow(sum(start + c) - mean, 2);
      const double rstd = 1 / std::sqrt(squares / of.columns + eps);
      if (of.is_layer_norm) EXPECT_NEAR(found.mean[r], mean, 1e-6 * (1 + std::abs(mean)));
      EXPECT_NEAR(found.rstd[r] / rstd, 1, 2e-5);
      for (int64_t c = 0; c < of.columns; ++c) {
        const int64_t i = start + c;
        if (of.has_delta) ASSERT_EQ(widened(found.sum[i]), sum(i));
        const double wanted = (sum(i) - mean) * rstd * widened(gamma[c]) +
                              (of.is_layer_norm ? widened(beta[c]) : 0.0f);
        if (of.transposes) ASSERT_EQ(found.column_codes[c * of.rows + r], found.codes[i]);
        if (of.transposes) continue;
        const float normed = widened(found.normed[i]);
        ASSERT_NEAR(normed, wanted, 0.51 * bf16_step(wanted) + 1e-4 * (1 + std::abs(wanted)) * 0.1)
            << "row " << r << ", column " << c << " of " << of.columns;
        largest = std::max(largest, std::abs(normed));
        if (of.quantizes)
          ASSERT_EQ(found.codes[i], fp8::encode(fp8::Format::kE4M3, normed * scale));
      }
    }
    if (of.quantizes) EXPECT_EQ(found.inverse, 1 / scale);
    if (of.quantizes && !of.transposes) EXPECT_EQ(std::bit_cast<float>(found.amax), largest);
  }
};

TEST(Norm, is_near_fp64_and_the_same_in_every_order) {
  for (const bool is_layer_norm : {false, true})
    for (const NormCase& c : std::vector<NormCase>{{is_layer_norm, 3, 96, true, true, 0, 0},
                                                   {is_layer_norm, 2, 2051, true, true, 0, 0},
                                                   {is_layer_norm, 2, 4096, false, true, 0, 0},
                                                   {is_layer_norm, 2, 5000, true, false, 30, 0},
                                                   {is_layer_norm, 3, 1, true, true, 0, 0},
                                                   {is_layer_norm, 2, 64, true, true, 0, 1},
                                                   {is_layer_norm, 2, 1000, true, true, 0, 0},
                                                   {is_layer_norm, 2, 7, false, false, 0, 0}}) {
      const NormProblem problem(c);
      const NormResult first = problem.run(0);
      problem.check(first);
      for (const uint64_t order : kOrders)
        EXPECT_TRUE(problem.run(order) == first) << c.columns << " columns, order " << order;
    }
}

// Both copies of the codes, and the largest magnitude, are those of the kernel that also writes the
// normed values.
TEST(Norm, transposed_codes_are_the_codes) {
  for (const bool is_layer_norm : {false, true})
    for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int32_t>>{
             {48, 96}, {37, 1024}, {5, 16}, {16, 1040}, {11, 4096}}) {
      const NormProblem both({is_layer_norm, rows, columns, true, true, 0, 0, true});
      const NormProblem plain({is_layer_norm, rows, columns, true, true, 0, 0});
      const NormResult wanted = plain.run(0), first = both.run(0);
      both.check(first);
      EXPECT_EQ(first.codes, wanted.codes);
      EXPECT_EQ(first.sum, wanted.sum);
      EXPECT_EQ(first.rstd, wanted.rstd);
      EXPECT_EQ(first.amax, wanted.amax);
      for (const uint64_t order : {3, 8}) EXPECT_TRUE(both.run(order) == first) << columns;
    }
}

TEST(Norm, the_largest_magnitude_is_kept_when_it_was_larger_and_ignores_nan) {
  NormProblem problem({false, 2, 16, false, true, 0, 0});
  problem.gamma[3] = 0x7FC0;
  const NormResult found = problem.run(0);
  EXPECT_TRUE(std::isfinite(std::bit_cast<float>(found.amax)));
  EXPECT_GT(std::bit_cast<float>(found.amax), 0.1f);
  EXPECT_EQ(found.codes[3] & 0x7F, 0x7F);  // NaN stays NaN
}

TEST(Norm, refuses_rows_that_do_not_fit) {
  HostLauncher on;
  NormArguments wide{};
  wide.columns = 16385;
  EXPECT_EQ(launch_norm(on, false, wide), kUnsupported);
  uint8_t code = 0;
  wide.column_codes = &code;
  wide.columns = 4097;
  EXPECT_EQ(launch_norm(on, false, wide), kUnsupported);
}

}  // namespace
}  // namespace octavo::kernels
