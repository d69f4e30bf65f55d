// GEMMs by the device against plain sums in double.
#include <cublasLt.h>
#include <cublas_v2.h>

#include <cmath>
#include <functional>
#include <random>

#include "device.h"

namespace octavo::fake_cuda {
namespace {

std::vector<float> random_numbers(std::size_t count, int seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> numbers(count);
  for (float& number : numbers) number = uniform(generator);
  return numbers;
}

// Small whole numbers, which E4M3 has exactly: the byte of each, and what it stands for.
struct Bytes {
  std::vector<std::uint8_t> bytes;
  std::vector<float> values;
};
Bytes random_e4m3(std::size_t count, int seed) {
  constexpr std::uint8_t kCodes[] = {0x00, 0x38, 0x40, 0x44,
                                     0xb8, 0xc0, 0xc4};  // 0, 1, 2, 3, -1, -2, -3
  constexpr float kValues[] = {0, 1, 2, 3, -1, -2, -3};
  std::mt19937 generator(seed);
  Bytes numbers;
  for (std::size_t i = 0; i < count; ++i) {
    const unsigned pick = generator() % 7;
    numbers.bytes.push_back(kCodes[pick]);
    numbers.values.push_back(kValues[pick]);
  }
  return numbers;
}

struct Shape {
  std::int64_t m, n, k;
};

using Element = std::function<double(std::int64_t, std::int64_t)>;

// Largest difference between D (column-major, leading dimension ld) and the sum over l of a(i, l)
// b(l, j), through `last`.
double largest_difference(const Shape& s, const std::vector<float>& d, std::int64_t ld,
                          const Element& a, const Element& b,
                          const std::function<double(std::int64_t, std::int64_t, double)>& last) {
  double largest = 0;
  for (std::int64_t j = 0; j < s.n; ++j) {
    for (std::int64_t i = 0; i < s.m; ++i) {
      double sum = 0;
      for (std::int64_t l = 0; l < s.k; ++l) sum += a(i, l) * b(l, j);
      largest = std::max(largest, std::fabs(d[i + j * ld] - last(i, j, sum)));
    }
  }
  return largest;
}

double as_it_is(std::int64_t, std::int64_t, double sum) {
  return sum;
}
constexpr double kRounding = 1e-5;  // sums of fewer than a hundred numbers below one, in FP32

// One GEMM by cuBLASLt: descriptors of the real library, filled step by step.
class LtGemm {
 public:
  explicit LtGemm(cudaDataType_t scale_type = CUDA_R_32F) {
    EXPECT_EQ(cublasLtCreate(&handle_), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatmulDescCreate(&desc_, CUBLAS_COMPUTE_32F, scale_type),
              CUBLAS_STATUS_SUCCESS);
  }
  LtGemm(const LtGemm&) = delete;
  LtGemm& operator=(const LtGemm&) = delete;
  ~LtGemm() {
    for (cublasLtMatrixLayout_t layout : layouts_) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(desc_);
    cublasLtDestroy(handle_);
  }

  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(desc_, attribute, &value, sizeof value),
              CUBLAS_STATUS_SUCCESS);
  }
  cublasLtMatrixLayout_t layout(cudaDataType_t type, std::int64_t rows, std::int64_t cols,
                                std::int64_t ld, bool row_order = false) {
    cublasLtMatrixLayout_t made = nullptr;
    EXPECT_EQ(cublasLtMatrixLayoutCreate(&made, type, rows, cols, ld), CUBLAS_STATUS_SUCCESS);
    const cublasLtOrder_t order = row_order ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
    EXPECT_EQ(
        cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order),
        CUBLAS_STATUS_SUCCESS);
    layouts_.push_back(made);
    return made;
  }
  cublasStatus_t run(const void* a, cublasLtMatrixLayout_t la, const void* b,
                     cublasLtMatrixLayout_t lb, void* d, cublasLtMatrixLayout_t ld, float alpha = 1,
                     float beta = 0) {
    return cublasLtMatmul(handle_, desc_, &alpha, a, la, b, lb, &beta, d, ld, d, ld, nullptr,
                          nullptr, 0, nullptr);
  }

 private:
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t desc_ = nullptr;
  std::vector<cublasLtMatrixLayout_t> layouts_;
};

TEST(Gemms, OperationsAndLeadingDimensions) {
  const Shape s = {21, 13, 37};
  const std::int64_t lda = 40, ldb = 41, ldd = 23;
  cublasHandle_t handle = nullptr;
  ASSERT_EQ(cublasCreate_v2(&handle), CUBLAS_STATUS_SUCCESS);
  const std::vector<float> a = random_numbers(40 * 40, 1);
  const std::vector<float> b = random_numbers(41 * 41, 2);
  const DeviceArray<float> da(a), db(b);
  const float alpha = 0.5f, beta = 0;
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const DeviceArray<float> d(std::vector<float>(ldd * s.n, NAN));  // beta = 0: D is not read
      ASSERT_EQ(
          cublasSgemm_v2(handle, ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb ? CUBLAS_OP_T : CUBLAS_OP_N, 21,
                         13, 37, &alpha, da.data(), lda, db.data(), ldb, &beta, d.data(), ldd),
          CUBLAS_STATUS_SUCCESS);
      const double error = largest_difference(
          s, d.read(), ldd, [&](auto i, auto l) { return ta ? a[l + i * lda] : a[i + l * lda]; },
          [&](auto l, auto j) { return tb ? b[j + l * ldb] : b[l + j * ldb]; },
          [](auto, auto, double sum) { return 0.5 * sum; });
      EXPECT_LT(error, kRounding) << ta << tb;
      EXPECT_TRUE(std::isnan(d.read()[s.m])) << "wrote between the columns";
    }
  }
  EXPECT_EQ(cublasDestroy_v2(handle), CUBLAS_STATUS_SUCCESS);
}

TEST(Gemms, RowOrderAndBeta) {
  const Shape s = {8, 12, 20};
  const std::vector<float> a = random_numbers(s.m * s.k, 3);
  const std::vector<float> b = random_numbers(s.k * s.n, 4);
  const DeviceArray<float> da(a), db(b), d(std::vector<float>(s.m * s.n, 1));
  LtGemm gemm;
  ASSERT_EQ(gemm.run(da.data(), gemm.layout(CUDA_R_32F, s.m, s.k, s.k, true), db.data(),
                     gemm.layout(CUDA_R_32F, s.k, s.n, s.n, true), d.data(),
                     gemm.layout(CUDA_R_32F, s.m, s.n, s.m), 1, 2),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_LT(largest_difference(
                s, d.read(), s.m, [&](auto i, auto l) { return a[i * s.k + l]; },
                [&](auto l, auto j) { return b[l * s.n + j]; },
                [](auto, auto, double sum) { return sum + 2; }),
            kRounding);
}

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

TEST(Gemms, EpiloguesOfGelu) {
  const Shape s = {16, 8, 24};
  const std::vector<float> a = random_numbers(s.m * s.k, 5);
  const std::vector<float> b = random_numbers(s.k * s.n, 6);
  const std::vector<float> bias = random_numbers(s.m, 7);
  const DeviceArray<float> da(a), db(b), dbias(bias), d(std::vector<float>(s.m * s.n)),
      aux(std::vector<float>(s.m * s.n));
  const auto column_a = [&](auto i, auto l) { return a[i + l * s.m]; };
  const auto column_b = [&](auto l, auto j) { return b[l + j * s.k]; };
  LtGemm gemm;
  const auto la = gemm.layout(CUDA_R_32F, s.m, s.k, s.m);
  const auto lb = gemm.layout(CUDA_R_32F, s.k, s.n, s.k);
  const auto ld = gemm.layout(CUDA_R_32F, s.m, s.n, s.m);
  gemm.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
  gemm.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, dbias.data());
  gemm.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux.data());
  gemm.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, s.m);
  ASSERT_EQ(gemm.run(da.data(), la, db.data(), lb, d.data(), ld), CUBLAS_STATUS_SUCCESS);
  const auto with_bias = [&](auto i, auto, double sum) { return sum + bias[i]; };
  EXPECT_LT(largest_difference(s, aux.read(), s.m, column_a, column_b, with_bias), kRounding);
  EXPECT_LT(largest_difference(s, d.read(), s.m, column_a, column_b,
                               [&](auto i, auto, double sum) { return gelu(sum + bias[i]); }),
            kRounding);
  gemm.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DGELU);
  ASSERT_EQ(gemm.run(da.data(), la, db.data(), lb, d.data(), ld), CUBLAS_STATUS_SUCCESS);
  const std::vector<float> inputs = aux.read();
  const auto times_slope = [&](auto i, auto j, double sum) {
    const double x = inputs[i + j * s.m];
    return sum * (gelu(x + 1e-4) - gelu(x - 1e-4)) / 2e-4;
  };
  EXPECT_LT(largest_difference(s, d.read(), s.m, column_a, column_b, times_slope), 1e-4);
}

TEST(Gemms, BiasGradientOfB) {
  const Shape s = {8, 8, 16};
  const std::vector<float> b = random_numbers(s.k * s.n, 8);
  const DeviceArray<float> a(random_numbers(s.m * s.k, 9)), db(b), d(std::vector<float>(64)),
      sums(std::vector<float>(8));
  LtGemm gemm;
  gemm.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BGRADB);
  gemm.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, sums.data());
  ASSERT_EQ(gemm.run(a.data(), gemm.layout(CUDA_R_32F, s.m, s.k, s.m), db.data(),
                     gemm.layout(CUDA_R_32F, s.k, s.n, s.k), d.data(),
                     gemm.layout(CUDA_R_32F, s.m, s.n, s.m)),
            CUBLAS_STATUS_SUCCESS);
  for (std::int64_t j = 0; j < s.n; ++j) {
    double wanted = 0;
    for (std::int64_t l = 0; l < s.k; ++l) wanted += b[l + j * s.k];
    EXPECT_NEAR(sums.read()[j], wanted, kRounding);
  }
}

// FP8 into FP8: A transposed, both scales, the scale of D and the largest value before it.
TEST(Gemms, EightBitsInAndOut) {
  const Shape s = {16, 16, 32};
  const Bytes a = random_e4m3(s.m * s.k, 10);
  const Bytes b = random_e4m3(s.k * s.n, 11);
  const DeviceArray<std::uint8_t> da(a.bytes), db(b.bytes), d(std::vector<std::uint8_t>(s.m * s.n));
  const DeviceArray<float> sa({0.5f}), sb({0.25f}), sd({2.0f}), amax({0.0f});
  LtGemm gemm;
  gemm.set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  gemm.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, sa.data());
  gemm.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, sb.data());
  gemm.set(CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, sd.data());
  gemm.set(CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, amax.data());
  const auto la = gemm.layout(CUDA_R_8F_E4M3, s.k, s.m, s.k);
  const auto lb = gemm.layout(CUDA_R_8F_E4M3, s.k, s.n, s.k);
  api()->reset();
  ASSERT_EQ(
      gemm.run(da.data(), la, db.data(), lb, d.data(), gemm.layout(CUDA_R_8F_E4M3, s.m, s.n, s.m)),
      CUBLAS_STATUS_SUCCESS);
  double largest = 0;
  const std::vector<std::uint8_t> bytes = d.read();
  for (std::int64_t j = 0; j < s.n; ++j) {
    for (std::int64_t i = 0; i < s.m; ++i) {
      double sum = 0;
      for (std::int64_t l = 0; l < s.k; ++l) sum += a.values[l + i * s.k] * b.values[l + j * s.k];
      largest = std::max(largest, std::fabs(sum * 0.125));
      // E4M3 has 4 significant bits: the nearest is at most one sixteenth away.
      const std::uint8_t byte = bytes[i + j * s.m];
      const int exponent = byte >> 3 & 15, mantissa = byte & 7;
      const double size =
          exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
      EXPECT_NEAR((byte & 128) != 0 ? -size : size, sum * 0.25, std::fabs(sum * 0.25) / 16 + 1e-9);
    }
  }
  EXPECT_FLOAT_EQ(amax.read()[0], static_cast<float>(largest));
  const std::vector<Gemm> seen = gemms();
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].a.scale, sa.data());
  EXPECT_EQ(seen[0].b.scale, sb.data());
  EXPECT_EQ(seen[0].computed, 1);
}

TEST(Gemms, WhatNineZeroRefuses) {
  const DeviceArray<std::uint8_t> bytes(std::vector<std::uint8_t>(64 * 64 + 16));
  const DeviceArray<float> d(std::vector<float>(64 * 64));
  const auto attempt = [&](cublasOperation_t ta, cudaDataType_t type, std::int64_t k, int offset,
                           int mode) {
    LtGemm gemm;
    gemm.set(CUBLASLT_MATMUL_DESC_TRANSA, ta);
    gemm.set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode);
    gemm.set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode);
    gemm.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, d.data());
    gemm.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, d.data());
    const auto la = ta == CUBLAS_OP_T ? gemm.layout(type, k, 64, k) : gemm.layout(type, 64, k, 64);
    return gemm.run(bytes.data() + offset, la, bytes.data(), gemm.layout(type, k, 64, k), d.data(),
                    gemm.layout(CUDA_R_32F, 64, 64, 64));
  };
  EXPECT_EQ(attempt(CUBLAS_OP_T, CUDA_R_8F_E4M3, 64, 0, 0), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(attempt(CUBLAS_OP_N, CUDA_R_8F_E4M3, 64, 0, 0), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(attempt(CUBLAS_OP_T, CUDA_R_8F_E5M2, 64, 0, 0), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(attempt(CUBLAS_OP_T, CUDA_R_8F_E4M3, 56, 0, 0), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(attempt(CUBLAS_OP_T, CUDA_R_8F_E4M3, 64, 8, 0), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(attempt(CUBLAS_OP_T, CUDA_R_8F_E4M3, 64, 0, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(
      attempt(CUBLAS_OP_T, CUDA_R_8F_E4M3, 64, 0, CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F),
      CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(attempt(CUBLAS_OP_T, CUDA_R_8F_E4M3, 64, 0, CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0),
            CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST(Gemms, ABatchInBF16) {
  const Shape s = {8, 8, 16};
  const int count = 3;
  std::vector<std::uint16_t> a(count * s.m * s.k), b(count * s.k * s.n);
  std::mt19937 generator(12);
  for (auto* numbers : {&a, &b}) {
    for (std::uint16_t& bits : *numbers)
      bits = static_cast<std::uint16_t>(0x3f80 + generator() % 64);  // 1 to 1.5
  }
  const auto value = [](std::uint16_t bits) { return 1 + (bits - 0x3f80) / 128.0; };
  const DeviceArray<std::uint16_t> da(a), db(b);
  const DeviceArray<float> d(std::vector<float>(count * s.m * s.n));
  cublasHandle_t handle = nullptr;
  ASSERT_EQ(cublasCreate_v2(&handle), CUBLAS_STATUS_SUCCESS);
  const float one = 1, zero = 0;
  ASSERT_EQ(cublasGemmStridedBatchedEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 8, 8, 16, &one, da.data(),
                                       CUDA_R_16BF, 8, 128, db.data(), CUDA_R_16BF, 16, 128, &zero,
                                       d.data(), CUDA_R_32F, 8, 64, count, CUBLAS_COMPUTE_32F,
                                       CUBLAS_GEMM_DEFAULT),
            CUBLAS_STATUS_SUCCESS);
  const std::vector<float> found = d.read();
  for (int batch = 0; batch < count; ++batch) {
    const std::vector<float> part(found.begin() + batch * 64, found.begin() + (batch + 1) * 64);
    EXPECT_LT(largest_difference(
                  s, part, 8, [&](auto i, auto l) { return value(a[batch * 128 + i + l * 8]); },
                  [&](auto l, auto j) { return value(b[batch * 128 + l + j * 16]); }, as_it_is),
              kRounding);
  }
  EXPECT_EQ(cublasDestroy_v2(handle), CUBLAS_STATUS_SUCCESS);
}

}  // namespace
}  // namespace octavo::fake_cuda
