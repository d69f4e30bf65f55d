// GEMMs over BF16 operands: by oneDNN's BF16 primitives, where it has them, and by FP32 GEMMs of
// oneDNN and of libtorch's BLAS over widened operands, which every CPU has.

#include "engine/cpu/gemm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "engine/compare.h"
#include "engine/harness.h"

namespace octavo::engine::cpu {
namespace {

struct Problem {
  GemmShape shape;
  at::Tensor a, b, bias, c;  // a and b as stored
  float scale = 1;
};

// Integers so small that every sum of products is exact in FP32, whatever the order.
at::Tensor small_integers(at::IntArrayRef sizes, at::ScalarType type) {
  return at::randint(-4, 5, sizes, at::kFloat).to(type);
}

// Rows of `a`, `b` and `c` are wider than what is multiplied, by `spare` numbers.
Problem make_problem(GemmShape s, int64_t spare) {
  const int64_t a_columns = s.a_transposed ? s.m : s.k, b_columns = s.b_transposed ? s.k : s.n;
  s.lda = a_columns + spare;
  s.ldb = b_columns + spare;
  s.ldc = s.n + spare;
  return {s,
          small_integers({s.a_transposed ? s.k : s.m, s.lda}, at::kBFloat16),
          small_integers({s.b_transposed ? s.n : s.k, s.ldb}, at::kBFloat16),
          s.bias ? small_integers({s.n}, at::kFloat) : at::Tensor(),
          small_integers({s.m, s.ldc}, s.fp32_result ? at::kFloat : at::kBFloat16),
          s.scaled ? 0.375f : 1.0f};
}

at::Tensor truth(const Problem& p) {
  const GemmShape& s = p.shape;
  const at::Tensor a = p.a.narrow(1, 0, s.a_transposed ? s.m : s.k).to(at::kDouble);
  const at::Tensor b = p.b.narrow(1, 0, s.b_transposed ? s.k : s.n).to(at::kDouble);
  at::Tensor sum = at::mm(s.a_transposed ? a.t() : a, s.b_transposed ? b.t() : b) * p.scale;
  if (s.bias) sum += p.bias;
  at::Tensor c = p.c.clone();
  if (s.add) sum += c.narrow(1, 0, s.n);
  c.narrow(1, 0, s.n).copy_(sum.to(at::kFloat));
  return c;
}

at::Tensor result_of(const Problem& p, GemmOperands operands) {
  GemmCache cache(operands);
  const Gemm& gemm = cache.get(p.shape);
  at::Tensor c = p.c.clone();
  at::Tensor scratch = at::empty({static_cast<int64_t>(scratch_bytes(gemm))}, at::kByte);
  run(gemm, p.a.const_data_ptr(), p.b.const_data_ptr(),
      p.bias.defined() ? p.bias.const_data_ptr() : nullptr, c.mutable_data_ptr(),
      scratch.mutable_data_ptr(), p.scale);
  return c;
}

std::vector<GemmOperands> kinds_here() {
  if (!bf16_gemms_missing().empty()) return {GemmOperands::kFp32, GemmOperands::kFp32Blas};
  return {GemmOperands::kBf16, GemmOperands::kFp32, GemmOperands::kFp32Blas};
}

void expect_exact(const GemmShape& shape, int64_t spare = 0) {
  const Problem problem = make_problem(shape, spare);
  const at::Tensor wanted = truth(problem);
  for (const GemmOperands operands : kinds_here())
    EXPECT_TRUE(same_bits(result_of(problem, operands), wanted))
        << shape.m << " x " << shape.n << " x " << shape.k << ", spare " << spare << ", operands "
        << static_cast<int>(operands);
}

// Every kind of GEMM, with each bit of `kind` a property; what lies beyond rows stays as it was.
TEST(Gemm, EveryKindIsExactOnSmallIntegers) {
  at::manual_seed(3);
  for (unsigned kind = 0; kind < 128; ++kind) {
    SCOPED_TRACE(kind);
    const auto has = [&](unsigned bit) { return (kind >> bit & 1) != 0; };
    expect_exact({.m = 33,
                  .n = 17,
                  .k = 40,
                  .a_transposed = has(0),
                  .b_transposed = has(1),
                  .fp32_result = has(2),
                  .add = has(3),
                  .bias = has(4),
                  .scaled = has(5),
                  .one_thread = has(6)},
                 static_cast<int64_t>(kind % 3));
  }
}

// Long enough to be cut into panels along each dimension, with a short last panel.
TEST(Gemm, PanelsAlongEveryDimension) {
  at::manual_seed(4);
  constexpr int64_t kLong = 40000;
  for (const bool fp32_result : {false, true})
    for (const bool transposed : {false, true})
      for (const GemmShape& s : {GemmShape{.m = kLong, .n = 48, .k = 72},
                                 {.m = 48, .n = kLong, .k = 72},
                                 {.m = 48, .n = 72, .k = kLong}}) {
        GemmShape shape = s;
        shape.a_transposed = transposed;
        shape.b_transposed = !transposed;
        shape.fp32_result = fp32_result;
        shape.bias = true;
        shape.add = transposed;
        expect_exact(shape, 1);
      }
}

// Large enough for b to be packed first, with edges that fill no block.
TEST(Gemm, APackedBIsExactOnSmallIntegers) {
  if (!bf16_gemms_missing().empty()) GTEST_SKIP() << bf16_gemms_missing();
  at::manual_seed(6);
  for (unsigned kind = 0; kind < 16; ++kind) {
    SCOPED_TRACE(kind);
    const auto has = [&](unsigned bit) { return (kind >> bit & 1) != 0; };
    const GemmShape shape{.m = 579,
                          .n = 523,
                          .k = 517,
                          .a_transposed = has(0),
                          .fp32_result = has(1),
                          .add = has(2),
                          .bias = has(3),
                          .scaled = has(3)};
    expect_exact(shape, static_cast<int64_t>(kind % 3));
    if (!has_bf16_units()) continue;  // oneDNN's kernels then take b as it is stored
    GemmCache cache(GemmOperands::kBf16);
    EXPECT_GE(scratch_bytes(cache.get(make_problem(shape, 0).shape)),
              static_cast<size_t>(shape.n * shape.k) * 2)
        << "not packed";
  }
}

// The sums of SmolLM2's GEMMs keep their order.
TEST(Gemm, PackingDoesNotChangeABit) {
  if (!bf16_gemms_missing().empty()) GTEST_SKIP() << bf16_gemms_missing();
  at::manual_seed(8);
  for (const GemmShape& s :
       {GemmShape{.m = 2048, .n = 576, .k = 960},
        {.m = 576, .n = 576, .k = 2048, .a_transposed = true, .fp32_result = true}}) {
    GemmShape shape = s;
    shape.lda = shape.a_transposed ? shape.m : shape.k;
    shape.ldb = shape.ldc = shape.n;
    const Problem p{shape, at::randn({shape.a_transposed ? s.k : s.m, shape.lda}).to(at::kBFloat16),
                    at::randn({s.k, s.n}).to(at::kBFloat16), at::Tensor(),
                    at::zeros({s.m, s.n}, s.fp32_result ? at::kFloat : at::kBFloat16)};
    const auto plain = make_onednn(shape, GemmOperands::kBf16);
    at::Tensor wanted = p.c.clone();
    at::Tensor scratch = at::empty({static_cast<int64_t>(plain->scratch_bytes())}, at::kByte);
    plain->run(p.a.const_data_ptr(), p.b.const_data_ptr(), nullptr, wanted.mutable_data_ptr(),
               scratch.mutable_data_ptr(), 1);
    EXPECT_TRUE(same_bits(result_of(p, GemmOperands::kBf16), wanted))
        << s.m << " x " << s.n << " x " << s.k;
  }
}

// A b that was written where and how the GEMM reads it.
TEST(Gemm, TakesABThatLiesAsItReadsIt) {
  if (!bf16_gemms_missing().empty()) GTEST_SKIP() << bf16_gemms_missing();
  at::manual_seed(9);
  const Problem p = make_problem(
      {.m = 576, .n = 512, .k = 1024, .a_transposed = true, .fp32_result = true, .add = true}, 0);
  GemmCache cache(GemmOperands::kBf16);
  const Gemm& gemm = cache.get(p.shape);
  const PairedLayout* layout = gemm.layout_of_b();
  if (layout == nullptr) GTEST_SKIP() << "this kernel reads b otherwise";
  at::Tensor c = p.c.clone(),
             scratch = at::empty({static_cast<int64_t>(scratch_bytes(gemm))}, at::kByte);
  const auto* b = static_cast<const uint16_t*>(p.b.const_data_ptr());
  auto* to = static_cast<uint16_t*>(scratch.mutable_data_ptr());
  for (int64_t k = 0; k < p.shape.k; ++k)
    for (int64_t n = 0; n < p.shape.n; ++n)
      to[k / 32 * layout->row_step + n / 64 * layout->column_step + k % 32 / 2 * 128 + n % 64 * 2 +
         k % 2] = b[k * p.shape.n + n];
  run(gemm, p.a.const_data_ptr(), nullptr, nullptr, c.mutable_data_ptr(),
      scratch.mutable_data_ptr());
  EXPECT_TRUE(same_bits(c, truth(p)));
}

// b goes through blocks of the kernel's own; with b in plain rows the bits are the same. Sums here
// are rounded, so another order of them would show.
TEST(Gemm, BlocksOfBDoNotChangeABit) {
  if (!onednn_missing().empty()) GTEST_SKIP() << onednn_missing();
  at::manual_seed(5);
  for (const GemmShape& s : {GemmShape{.m = 33, .n = 100, .k = 75},
                             {.m = 64, .n = 64, .k = 1100, .a_transposed = true},
                             {.m = 256, .n = 64, .k = 256, .add = true, .one_thread = true},
                             {.m = 5, .n = 1, .k = 17, .bias = true},
                             {.m = 1, .n = 130, .k = 16, .scaled = true}}) {
    GemmShape shape = s;
    shape.fp32_result = true;
    shape.lda = shape.a_transposed ? shape.m : shape.k;
    shape.ldb = shape.ldc = shape.n;
    Problem p{shape,
              at::randn({shape.a_transposed ? s.k : s.m, shape.lda}).to(at::kBFloat16),
              at::randn({s.k, s.n}).to(at::kBFloat16),
              s.bias ? at::randn({s.n}) : at::Tensor(),
              at::randn({s.m, s.n}),
              s.scaled ? 0.37f : 1.0f};
    const at::Tensor a = p.a.to(at::kFloat), b = p.b.to(at::kFloat);
    const auto plain = make_onednn(shape, GemmOperands::kFp32);
    at::Tensor wanted = p.c.clone();
    at::Tensor scratch = at::empty({static_cast<int64_t>(plain->scratch_bytes())}, at::kByte);
    plain->run(a.const_data_ptr(), b.const_data_ptr(), s.bias ? p.bias.const_data_ptr() : nullptr,
               wanted.mutable_data_ptr(), scratch.mutable_data_ptr(), p.scale);
    EXPECT_TRUE(same_bits(result_of(p, GemmOperands::kFp32), wanted))
        << s.m << " x " << s.n << " x " << s.k;
  }
}

// A BLAS divides its sums by the threads that it has; ours must not show. One tile and many, sums
// long enough to be divided.
TEST(Gemm, BlasDoesNotDependOnThreads) {
  at::manual_seed(6);
  for (const GemmShape& s : {GemmShape{.m = 64, .n = 100, .k = 5000},
                             {.m = 100, .n = 1, .k = 5000},
                             {.m = 300, .n = 700, .k = 1000, .add = true},
                             {.m = 16, .n = 16, .k = 40000, .a_transposed = true}}) {
    GemmShape shape = s;
    shape.fp32_result = true;
    shape.lda = shape.a_transposed ? shape.m : shape.k;
    shape.ldb = shape.ldc = shape.n;
    const Problem p{shape,
                    at::randn({shape.a_transposed ? s.k : s.m, shape.lda}).to(at::kBFloat16),
                    at::randn({s.k, s.n}).to(at::kBFloat16),
                    at::Tensor(),
                    at::randn({s.m, s.n}),
                    1.0f};
    expect_independent_of_threads(
        [&] { return std::vector<at::Tensor>{result_of(p, GemmOperands::kFp32Blas)}; });
  }
}

TEST(Gemm, WidenedCopiesStaySmall) {
  // The head of GPT-2 over 1,024 tokens: 206 MB of FP32 logits, 155 MB of FP32 weights.
  const auto head = make_widened({.m = 1024,
                                  .n = 50304,
                                  .k = 768,
                                  .lda = 768,
                                  .ldb = 768,
                                  .ldc = 50304,
                                  .b_transposed = true});
  EXPECT_LT(head->scratch_bytes(), 24u << 20);
}

// What is not finite shows, and only where it must.
TEST(Gemm, NanAndInfinityShow) {
  for (const float bad : {NAN, INFINITY}) {
    Problem p = make_problem({.m = 5, .n = 6, .k = 7}, 0);
    p.a[2][3] = bad;
    for (const GemmOperands operands : kinds_here()) {
      const at::Tensor c = result_of(p, operands).to(at::kFloat);
      EXPECT_FALSE(at::isfinite(c[2]).all().item<bool>());
      EXPECT_TRUE(at::isfinite(c.narrow(0, 0, 2)).all().item<bool>());
      EXPECT_TRUE(at::isfinite(c.narrow(0, 3, 2)).all().item<bool>());
    }
  }
}

}  // namespace
}  // namespace octavo::engine::cpu
