// A GEMM on the host: plain, blocked, in FP32. D is column-major, so the GEMM is made
// transposed: rows of the result are columns of D, `left` is op(B) and `right` op(A).
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include <cublasLt.h>

#include "fake_cuda/gemm.h"

namespace octavo::fake_cuda {
namespace {

constexpr std::int64_t kRows = 4;    // of the register tile
constexpr std::int64_t kPanel = 16;  // columns of the register tile
constexpr std::int64_t kChunk = 32;  // rows that a thread takes at once

using Vector = float __attribute__((vector_size(32)));
constexpr std::int64_t kLanes = 8;

struct Tile {
  float sum[kRows][kPanel];
};

// sum[r][c] = left row r times panel column c, over elements [begin, end).
__attribute__((always_inline)) inline void multiply_tile(const float* left,
                                                         std::int64_t left_stride,
                                                         const float* panel, std::int64_t begin,
                                                         std::int64_t end, Tile* tile) {
  Vector sum[kRows][kPanel / kLanes] = {};
  for (std::int64_t l = begin; l < end; ++l) {
    Vector column[kPanel / kLanes];
    __builtin_memcpy(column, panel + l * kPanel, sizeof column);
    for (std::int64_t r = 0; r < kRows; ++r) {
      const float factor = left[r * left_stride + l];
      for (std::int64_t c = 0; c < kPanel / kLanes; ++c) sum[r][c] += factor * column[c];
    }
  }
  __builtin_memcpy(tile->sum, sum, sizeof sum);
}

void multiply_tile_plain(const float* left, std::int64_t left_stride, const float* panel,
                         std::int64_t begin, std::int64_t end, Tile* tile) {
  multiply_tile(left, left_stride, panel, begin, end, tile);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void multiply_tile_avx2(const float* left, std::int64_t left_stride,
                                                        const float* panel, std::int64_t begin,
                                                        std::int64_t end, Tile* tile) {
  multiply_tile(left, left_stride, panel, begin, end, tile);
}

auto* fastest_multiply_tile() {
  return __builtin_cpu_supports("avx2") ? multiply_tile_avx2 : multiply_tile_plain;
}
#else
auto* fastest_multiply_tile() {
  return multiply_tile_plain;
}
#endif

bool has_mx_scales(const ScaleView& scales) {
  return scales.mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
}

bool has_block_scales(const ScaleView& scales) {
  return scales.mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F ||
         scales.mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
}

// One operand of one GEMM of a batch.
struct Source {
  const char* data;
  int type;
  Strides strides;
  ScaleView scales;

  // Row `at` in FP32, with E8M0 scales (which are exact) multiplied in.
  void decode_row(std::int64_t at, float* out, std::int64_t out_stride) const {
    for (std::int64_t l = 0; l < scales.inner; ++l) {
      out[l * out_stride] =
          load_element(data, type, at * strides.outer_stride + l * strides.inner_stride);
    }
    if (!has_mx_scales(scales) || scales.inner == 0) return;
    for (std::int64_t l = 0; l < scales.inner; ++l)
      out[l * out_stride] *= scales.mx_block(at, l / kMxBlock);
    if (scales.padding_is_nan(at)) out[0] = std::numeric_limits<float>::quiet_NaN();
  }
};

Source source_of(const GemmOperand& x, const Strides& strides, std::int64_t batch,
                 std::int64_t outer, std::int64_t inner) {
  const auto* const data =
      static_cast<const char*>(x.data) + batch * x.batch_stride * element_bytes(x.type);
  return {data,
          x.type,
          strides,
          {is_fp8(x.type) ? x.scale : nullptr, is_fp8(x.type) ? x.scale_mode : 0, outer, inner}};
}

class HostGemm {
 public:
  HostGemm(const Gemm& gemm, std::int64_t batch)
      : gemm_(gemm),
        right_(source_of(gemm.a, left_strides(gemm.a), batch, gemm.m, gemm.k)),
        left_(source_of(gemm.b, right_strides(gemm.b), batch, gemm.n, gemm.k)),
        batch_(batch),
        blocks_(has_block_scales(right_.scales) || has_block_scales(left_.scales)),
        multiply_(fastest_multiply_tile()) {}

  void run() {
    const std::int64_t panels = (gemm_.m + kPanel - 1) / kPanel;
    panels_.assign(panels * gemm_.k * kPanel, 0);
    in_parallel(panels, [this](std::int64_t panel) {
      for (std::int64_t c = 0; c < kPanel && panel * kPanel + c < gemm_.m; ++c) {
        right_.decode_row(panel * kPanel + c, &panels_[panel * gemm_.k * kPanel + c], kPanel);
      }
    });
    in_parallel((gemm_.n + kChunk - 1) / kChunk,
                [this](std::int64_t chunk) { rows(chunk * kChunk); });
    bias_gradients();
    if (gemm_.amax_d != nullptr) *static_cast<float*>(gemm_.amax_d) = largest_;
  }

 private:
  template <typename Function>
  void in_parallel(std::int64_t pieces, const Function& work) const {
    const bool small = gemm_.m * gemm_.n * gemm_.k < (1 << 20);
    const std::int64_t threads =
        small ? 1 : std::min<std::int64_t>(pieces, std::thread::hardware_concurrency());
    std::atomic<std::int64_t> next = 0;
    const auto loop = [&] {
      for (std::int64_t piece = next++; piece < pieces; piece = next++) work(piece);
    };
    std::vector<std::thread> helpers;
    for (std::int64_t i = 1; i < threads; ++i) helpers.emplace_back(loop);
    loop();
    for (std::thread& helper : helpers) helper.join();
  }

  void rows(std::int64_t first) const {
    const std::int64_t count = std::min(kChunk, gemm_.n - first);
    std::vector<float> left(kChunk * gemm_.k, 0);
    for (std::int64_t j = 0; j < count; ++j) left_.decode_row(first + j, &left[j * gemm_.k], 1);
    const std::int64_t panels = (gemm_.m + kPanel - 1) / kPanel;
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      for (std::int64_t j = 0; j < count; j += kRows) {
        Tile tile{};
        sum_tile(&left[j * gemm_.k], first + j, panel, &tile);
        for (std::int64_t r = 0; r < kRows && j + r < count; ++r)
          finish(first + j + r, panel * kPanel, tile.sum[r]);
      }
    }
  }

  // Blocks with FP32 scales are summed one by one, each multiplied by its two scales before it is
  // added.
  void sum_tile(const float* left, std::int64_t row, std::int64_t panel, Tile* tile) const {
    const float* const right = &panels_[panel * gemm_.k * kPanel];
    if (!blocks_) return multiply_(left, gemm_.k, right, 0, gemm_.k, tile);
    for (std::int64_t begin = 0; begin < gemm_.k; begin += kBlock) {
      Tile part;
      multiply_(left, gemm_.k, right, begin, std::min(gemm_.k, begin + kBlock), &part);
      for (std::int64_t r = 0; r < kRows && row + r < gemm_.n; ++r) {
        const float left_scale = left_.scales.block(row + r, begin / kBlock);
        for (std::int64_t c = 0; c < kPanel && panel * kPanel + c < gemm_.m; ++c) {
          tile->sum[r][c] += part.sum[r][c] *
                             (left_scale * right_.scales.block(panel * kPanel + c, begin / kBlock));
        }
      }
    }
  }

  // Column j of D, rows from i0 on: scales, C, epilogue, output type.
  void finish(std::int64_t j, std::int64_t i0, const float* sums) const;
  float after_epilogue(std::int64_t i, std::int64_t j, float value) const;
  void bias_gradients() const;

  std::int64_t index(const GemmOperand& x, std::int64_t i, std::int64_t j) const {
    return batch_ * x.batch_stride + (x.order == CUBLASLT_ORDER_ROW ? i * x.ld + j : i + j * x.ld);
  }

  const Gemm& gemm_;
  Source right_, left_;
  std::int64_t batch_;
  bool blocks_;
  void (*multiply_)(const float*, std::int64_t, const float*, std::int64_t, std::int64_t, Tile*);
  std::vector<float> panels_;
  mutable std::atomic<float> largest_ = 0;  // absolute value of D before its scale
};

constexpr float kGeluA = 0.7978845608f;  // sqrt(2 / pi), for the tanh form
constexpr float kGeluB = 0.044715f;

float gelu(float x) {
  return 0.5f * x * (1 + std::tanh(kGeluA * (x + kGeluB * x * x * x)));
}

float gelu_gradient(float x) {
  const float t = std::tanh(kGeluA * (x + kGeluB * x * x * x));
  return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * kGeluA * (1 + 3 * kGeluB * x * x);
}

float HostGemm::after_epilogue(std::int64_t i, std::int64_t j, float value) const {
  const int epilogue = gemm_.epilogue;
  if ((epilogue & CUBLASLT_EPILOGUE_BIAS) != 0 && gemm_.bias != nullptr) {
    value += load_element(gemm_.bias, gemm_.bias_type, i);
  }
  const std::int64_t aux_index = i + j * gemm_.aux_ld;
  if (epilogue == CUBLASLT_EPILOGUE_DGELU || epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD) {
    return value * gelu_gradient(load_element(gemm_.aux, gemm_.aux_type, aux_index));
  }
  if ((epilogue & CUBLASLT_EPILOGUE_GELU) != 0) {
    if ((epilogue & 128) != 0 && gemm_.aux != nullptr)
      store_element(gemm_.aux, gemm_.aux_type, aux_index, value);
    return gelu(value);
  }
  if ((epilogue & CUBLASLT_EPILOGUE_RELU) != 0) return std::max(value, 0.0f);
  return value;
}

void HostGemm::finish(std::int64_t j, std::int64_t i0, const float* sums) const {
  const float left_scale = left_.scales.whole(j);
  const auto* const d_scale =
      is_fp8(gemm_.d.type) ? static_cast<const float*>(gemm_.d.scale) : nullptr;
  float largest = 0;
  for (std::int64_t i = i0; i < std::min(i0 + kPanel, gemm_.m); ++i) {
    float value = gemm_.alpha * (right_.scales.whole(i) * left_scale) * sums[i - i0];
    if (gemm_.beta != 0)
      value += gemm_.beta * load_element(gemm_.c.data, gemm_.c.type, index(gemm_.c, i, j));
    value = after_epilogue(i, j, value);
    largest = std::max(largest, std::fabs(value));
    if (d_scale != nullptr) value *= *d_scale;
    store_element(gemm_.output, gemm_.d.type, index(gemm_.d, i, j), value);
  }
  for (float known = largest_;
       known < largest && !largest_.compare_exchange_weak(known, largest);) {
  }
}

// Sums over the contracted dimension of one operand, which cuBLASLt can leave beside the GEMM.
void HostGemm::bias_gradients() const {
  const bool of_a = gemm_.epilogue == CUBLASLT_EPILOGUE_BGRADA;
  if ((!of_a && gemm_.epilogue != CUBLASLT_EPILOGUE_BGRADB) || gemm_.bias == nullptr) return;
  const Source& source = of_a ? right_ : left_;
  std::vector<float> row(gemm_.k);
  for (std::int64_t at = 0; at < source.scales.outer; ++at) {
    source.decode_row(at, row.data(), 1);
    float sum = 0;
    for (const float value : row) sum += value;
    store_element(gemm_.bias, gemm_.bias_type, at, sum * source.scales.whole(at));
  }
}

}  // namespace

Strides left_strides(const GemmOperand& a) {
  const bool rows_adjacent = a.order != CUBLASLT_ORDER_ROW;  // stored column by column
  const bool outer_is_row = a.op == CUBLAS_OP_N;
  return rows_adjacent == outer_is_row ? Strides{1, a.ld} : Strides{a.ld, 1};
}

Strides right_strides(const GemmOperand& b) {
  const Strides stored = left_strides(b);  // op(B) has the contracted dimension first
  return {stored.inner_stride, stored.outer_stride};
}

void compute_gemm(const Gemm& gemm) {
  for (std::int64_t batch = 0; batch < gemm.batch_count; ++batch) HostGemm(gemm, batch).run();
}

}  // namespace octavo::fake_cuda
