#pragma once
// How far a result may be from the oracle's. The oracle computes in FP64 and rounds once, so a
// right implementation differs by its own last rounding (one unit in the last place of BF16, two of
// FP32) and by `slack`: what FP32 arithmetic inside it can lose, which each test derives from the
// magnitudes that were added up.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>

namespace octavo::engine {

// Relative to the sum of the magnitudes of the terms: FP32 rounds each addition by 2^-24 of the
// partial sum, and errors of both signs mostly cancel over a few thousand terms.
constexpr double kSumSlack = 1e-6;

// One unit in the last place of `dtype` at each value of t (FP64).
inline at::Tensor ulp(const at::Tensor& t, at::ScalarType dtype) {
  const double digits = dtype == at::kBFloat16 ? 7 : 23;
  const at::Tensor exponent = t.abs().clamp_min(0x1p-126).log2().floor();
  return at::exp2(exponent - digits);
}

inline testing::AssertionResult near(const at::Tensor& actual, const at::Tensor& expected,
                                     const at::Tensor& slack) {
  if (actual.scalar_type() != expected.scalar_type() || actual.sizes() != expected.sizes())
    return testing::AssertionFailure() << "wanted " << expected.scalar_type() << expected.sizes()
                                       << ", found " << actual.scalar_type() << actual.sizes();
  const at::Tensor a = actual.to(at::kDouble), e = expected.to(at::kDouble);
  const double units = actual.scalar_type() == at::kBFloat16 ? 1 : 2;
  const at::Tensor allowed = units * ulp(e, actual.scalar_type()) + slack.to(at::kDouble);
  // Written so that a NaN on either side is outside.
  const at::Tensor outside = ((a - e).abs() <= allowed).logical_not();
  const auto count = outside.sum().item<int64_t>();
  if (count == 0) return testing::AssertionSuccess();
  const at::Tensor excess = at::where(outside, ((a - e).abs() / allowed).nan_to_num(1e300), 0);
  const auto worst = excess.flatten().argmax().item<int64_t>();
  const auto at_worst = [&](const at::Tensor& t) {
    return t.expand_as(a).reshape({-1})[worst].item<double>();
  };
  return testing::AssertionFailure()
         << count << " of " << a.numel() << " values outside; worst at " << worst << " of "
         << a.sizes() << ": wanted " << at_worst(e) << " within " << at_worst(allowed) << ", found "
         << at_worst(a);
}

inline testing::AssertionResult near(const at::Tensor& actual, const at::Tensor& expected,
                                     double slack = 0) {
  return near(actual, expected, at::scalar_tensor(slack, at::kDouble));
}

inline testing::AssertionResult same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes())
    return testing::AssertionFailure() << "not of one type and shape";
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  if (std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0)
    return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "bits differ in " << x.ne(y).sum().item<int64_t>() << " of " << x.numel() << " values";
}

}  // namespace octavo::engine
