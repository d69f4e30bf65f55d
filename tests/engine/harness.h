#pragma once
// One harness for every implementation of every operation. A test of an operation is run once for
// each line of its table and each compute dtype; a line that refuses is skipped with its reason.
// A new implementation in src/engine/tables.cpp is tested without a change here.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "engine/compare.h"
#include "engine/modes.h"
#include "engine/op_table.h"
#include "engine/ops.h"

namespace octavo::engine {

constexpr int64_t kWidths[] = {1, 7, 16, 17, 64, 127, 768, 3072};
constexpr int64_t kRows[] = {1, 3, 33, 100};

struct Extent {
  int64_t rows, width;
};
inline std::string text_of(const Extent& e) {
  return std::to_string(e.rows) + " x " + std::to_string(e.width);
}
// All rows with all widths, but for the largest pair, which would only cost time.
inline std::vector<Extent> extents() {
  std::vector<Extent> result;
  for (const int64_t width : kWidths)
    for (const int64_t rows : kRows)
      if (rows * width <= 33 * 3072) result.push_back({rows, width});
  return result;
}

template <class Op>
struct Case {
  const Implementation<Op>* implementation = nullptr;
  at::ScalarType compute = at::kFloat;

  bool is_oracle() const { return implementation == &implementations<Op>().back(); }
  std::string name() const {
    std::string text(implementation->name);
    for (char& c : text)
      if (c == '/') c = '_';
    return text + (compute == at::kBFloat16 ? "_bf16" : "_fp32");
  }
  friend std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name(); }
};

enum class CaseSet { kAll, kAllButOracle, kAllInFp32 };

template <class Op>
std::vector<Case<Op>> cases(CaseSet set) {
  std::vector<Case<Op>> result;
  for (const auto& implementation : implementations<Op>())
    for (const auto compute : {at::kFloat, at::kBFloat16}) {
      const Case<Op> made{&implementation, compute};
      if (set == CaseSet::kAllButOracle && made.is_oracle()) continue;
      if (set == CaseSet::kAllInFp32 && compute != at::kFloat) continue;
      result.push_back(made);
    }
  return result;
}

template <class Op>
class OpTest : public testing::TestWithParam<Case<Op>> {
 protected:
  void SetUp() override {
    const Case<Op>& c = this->GetParam();
    compute = c.compute;
    const std::string reason = c.implementation->refusal(all_that_exist(compute));
    if (!reason.empty())
      GTEST_SKIP() << c.implementation->name << " refuses " << compute << ": " << reason;
    by_library =
        c.implementation->name.starts_with("aten") || c.implementation->name.starts_with("te");
    op = c.implementation->make();
    oracle = implementations<Op>().back().make();
    at::manual_seed(20);
  }
  // N(0, scale) in the compute dtype.
  at::Tensor random(at::IntArrayRef shape, double scale = 1) const {
    return (at::randn(shape) * scale).to(compute);
  }

  // What a library's kernels lose where an operation takes several of them: a BF16 rounding of
  // values of these magnitudes between two.
  at::Tensor between(const at::Tensor& magnitudes) const {
    return magnitudes * (by_library && compute == at::kBFloat16 ? 0x1p-8 : 0);
  }

  at::ScalarType compute = at::kFloat;
  bool by_library = false;  // kernels that are not ours: libtorch's, Transformer Engine's
  std::unique_ptr<Op> op, oracle;
};

// Op##Test runs for all implementations, Op##Values for all but the oracle.
#define OCTAVO_OP_TESTS(Op)                                                               \
  class Op##Test : public OpTest<Op> {};                                                  \
  class Op##Values : public OpTest<Op> {};                                                \
  INSTANTIATE_TEST_SUITE_P(Engine, Op##Test, testing::ValuesIn(cases<Op>(CaseSet::kAll)), \
                           [](const auto& info) { return info.param.name(); });           \
  INSTANTIATE_TEST_SUITE_P(Engine, Op##Values,                                            \
                           testing::ValuesIn(cases<Op>(CaseSet::kAllButOracle)),          \
                           [](const auto& info) { return info.param.name(); })

// Op##Gradient runs for all implementations in FP32: differences need its digits. Gradients in BF16
// are compared with the oracle's by value.
#define OCTAVO_OP_GRADIENT_TESTS(Op)                                          \
  class Op##Gradient : public OpTest<Op> {};                                  \
  INSTANTIATE_TEST_SUITE_P(Engine, Op##Gradient,                              \
                           testing::ValuesIn(cases<Op>(CaseSet::kAllInFp32)), \
                           [](const auto& info) { return info.param.name(); })

inline at::Tensor exact(const at::Tensor& t) {
  return t.to(at::kDouble);
}
inline at::Tensor magnitude(const at::Tensor& t) {
  return exact(t).abs();
}
inline bool any_not_finite(const at::Tensor& t) {
  return !at::isfinite(t).all().item<bool>();
}
inline bool all_finite(const at::Tensor& t) {
  return at::isfinite(t).all().item<bool>();
}

constexpr Accumulate kBothModes[] = {Accumulate::kOverwrite, Accumulate::kAdd};

// The number of threads, until the end of the block.
class Threads {
 public:
  explicit Threads(int wanted) : before_(at::get_num_threads()) { at::set_num_threads(wanted); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

// Calls `run` with 1, 2 and 3 threads; all tensors it returns must be the same bit for bit.
inline void expect_independent_of_threads(const std::function<std::vector<at::Tensor>()>& run) {
  const Threads restored_later(1);
  const auto wanted = run();
  for (const int threads : {2, 3}) {
    at::set_num_threads(threads);
    const auto found = run();
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i)
      EXPECT_TRUE(same_bits(found[i], wanted[i])) << "result " << i << ", threads " << threads;
  }
}

// d(sum of weight * forward()) / dx by central differences of fourth order, x FP32 and read by
// `forward`. With a step of 2^-6 the formula's error is about 1e-8 of the fifth derivative, and the
// rounding of FP32 outputs, divided by the step, some 1e-5: hence the 5e-4 in expect_derivative.
inline at::Tensor numeric_gradient(at::Tensor& x, const at::Tensor& weight,
                                   const std::function<at::Tensor()>& forward) {
  constexpr double kStep = 0x1p-6;
  const Threads single(1);  // thousands of tiny calls
  at::Tensor gradient = at::empty_like(x, x.options().dtype(at::kDouble));
  float* values = x.mutable_data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const float here = values[i];
    const auto at_offset = [&](double steps) {
      values[i] = static_cast<float>(here + steps * kStep);
      return exact(forward());
    };
    const at::Tensor slope = (8 * (at_offset(1) - at_offset(-1)) - (at_offset(2) - at_offset(-2)));
    values[i] = here;
    gradient.flatten()[i] = (slope * exact(weight)).sum() / (12 * kStep);
  }
  return gradient;
}

inline void expect_derivative(const at::Tensor& analytic, const at::Tensor& numeric) {
  const double scale = std::max(1.0, numeric.abs().max().item<double>());
  EXPECT_TRUE(
      near(analytic.to(at::kFloat), numeric.view(analytic.sizes()).to(at::kFloat), 5e-4 * scale));
}

}  // namespace octavo::engine
