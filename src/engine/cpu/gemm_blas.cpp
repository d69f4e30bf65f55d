// FP32 GEMMs by libtorch's BLAS: NVIDIA's NVPL and Arm's library in its wheel for aarch64, MKL in
// that for x86-64. The result is cut into tiles of one size, each a GEMM of one thread, so that its
// bits are the same for any number of threads, which no BLAS promises.

#include <ATen/ATen.h>

#include <algorithm>

#include "base/checked.h"
#include "engine/cpu/gemm.h"
#include "engine/parallel.h"

// MKL's and NVPL's, of which a wheel's libtorch has one and the linker leaves the other null: the
// number of threads of calls from this thread; 0 is everyone's.
extern "C" [[gnu::weak]] int MKL_Set_Num_Threads_Local(int threads);
extern "C" [[gnu::weak]] int nvpl_blas_set_num_threads_local(int threads);

namespace octavo::engine::cpu {
namespace {

// Within a parallel region, too, a BLAS divides its sums for all the threads that it was told of.
class OneBlasThread {
 public:
  OneBlasThread() { set(1); }
  ~OneBlasThread() { set(0); }
  OneBlasThread(const OneBlasThread&) = delete;
  OneBlasThread& operator=(const OneBlasThread&) = delete;

 private:
  static void set(int threads) {
    if (MKL_Set_Num_Threads_Local != nullptr) MKL_Set_Num_Threads_Local(threads);
    if (nvpl_blas_set_num_threads_local != nullptr) nvpl_blas_set_num_threads_local(threads);
  }
};

constexpr int64_t kTileRows = 128, kTileColumns = 512;

at::Tensor view(const float* data, int64_t rows, int64_t columns, int64_t stride,
                bool transposed = false) {
  const at::SmallVector<int64_t, 2> strides =
      transposed ? at::SmallVector<int64_t, 2>{1, stride} : at::SmallVector<int64_t, 2>{stride, 1};
  return at::from_blob(const_cast<float*>(data), {rows, columns}, strides, at::kFloat);
}

class BlasGemm final : public Gemm {
 public:
  explicit BlasGemm(const GemmShape& shape) : s_(shape) {}

  // A factor and a bias come to the finished sum: a BLAS may multiply one of the operands instead.
  size_t scratch_bytes() const override {
    return s_.add && (s_.scaled || s_.bias) ? static_cast<size_t>(s_.m * s_.n) * sizeof(float) : 0;
  }

  void run(const void* a, const void* b, const void* bias, void* c, void* scratch,
           float scale) const override {
    const auto* a32 = static_cast<const float*>(a);
    const auto* b32 = static_cast<const float*>(b);
    auto* c32 = static_cast<float*>(c);
    const bool apart = scratch_bytes() > 0;
    auto* sums = apart ? static_cast<float*>(scratch) : c32;
    const int64_t stride = apart ? s_.n : s_.ldc, across = ceil_div(s_.n, kTileColumns);
    parallel_for(0, ceil_div(s_.m, kTileRows) * across, 1, [&](int64_t begin, int64_t end) {
      const OneBlasThread one;
      for (int64_t tile = begin; tile < end; ++tile) {
        const int64_t row = tile / across * kTileRows, column = tile % across * kTileColumns;
        const int64_t rows = std::min(kTileRows, s_.m - row),
                      columns = std::min(kTileColumns, s_.n - column);
        const at::Tensor left =
            view(a32 + row * (s_.a_transposed ? 1 : s_.lda), rows, s_.k, s_.lda, s_.a_transposed);
        const at::Tensor right = view(b32 + column * (s_.b_transposed ? s_.ldb : 1), s_.k, columns,
                                      s_.ldb, s_.b_transposed);
        at::Tensor sum = view(sums + row * stride + column, rows, columns, stride);
        if (s_.add && !apart)
          sum.addmm_(left, right);
        else
          at::mm_out(sum, left, right);
        const float* its_bias =
            bias != nullptr ? static_cast<const float*>(bias) + column : nullptr;
        if (s_.scaled || s_.bias)
          finish(sums + row * stride + column, stride, its_bias, scale, c32 + row * s_.ldc + column,
                 rows, columns);
      }
    });
  }

 private:
  void finish(const float* sums, int64_t stride, const float* bias, float scale, float* c,
              int64_t rows, int64_t columns) const {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) {
        float value = sums[i * stride + j] * scale;
        if (bias != nullptr) value += bias[j];
        c[i * s_.ldc + j] = s_.add ? c[i * s_.ldc + j] + value : value;
      }
  }

  GemmShape s_;
};

}  // namespace

std::unique_ptr<Gemm> make_blas(const GemmShape& shape) {
  return std::make_unique<BlasGemm>(shape);
}

}  // namespace octavo::engine::cpu
