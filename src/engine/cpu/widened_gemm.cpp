// A GEMM over BF16 operands by FP32 GEMMs, for CPUs whose BF16 GEMMs are missing (below
// AVX-512) or emulated and slow (AVX-512 without BF16 units). Operands are widened, a BF16 result
// is rounded once from FP32 sums. The longest dimension is cut into panels, so that the copies stay
// small and near the cores; panels along K add to the FP32 sums. b is widened into the blocks that
// oneDNN's kernel reads: with rows of b as they lie in memory it ran at half the speed (53 and 124
// GFLOP/s on one core with AVX-512, [1024, 2304] x [2304, 768]), and widening writes them anyway.

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "engine/cpu/bf16_rows.h"
#include "engine/cpu/gemm.h"
#include "engine/parallel.h"

namespace octavo::engine::cpu {
namespace {

constexpr int64_t kPanelBytes = 8 << 20;  // of all FP32 copies that a panel needs anew
constexpr int64_t kPanelStep = 64;

struct Slice {
  int64_t first, count;
};

// A part of the GEMM: c[m,n] (+)= a[m,k] b[k,n].
struct Panel {
  Slice m, n, k;
  const Gemm* gemm = nullptr;
  BlockedLayout b = {};  // of the widened b
};

enum class SplitAxis : uint8_t { kM, kN, kK };

SplitAxis longest(const GemmShape& s) {
  if (s.k > s.m && s.k > s.n) return SplitAxis::kK;
  return s.m > s.n ? SplitAxis::kM : SplitAxis::kN;
}

// FP32 numbers that one more row (kM), column (kN) or term (kK) needs.
int64_t floats_per_unit(const GemmShape& s, SplitAxis axis) {
  if (axis == SplitAxis::kK) return s.m + s.n;
  const int64_t other = axis == SplitAxis::kM ? s.n : s.m;
  return s.k + (s.fp32_result ? 0 : other);
}

std::vector<Slice> slices(int64_t length, int64_t floats_each) {
  const int64_t fitting = kPanelBytes / 4 / std::max<int64_t>(floats_each, 1);
  const int64_t count = ceil_div(length, std::max(fitting, kPanelStep));
  std::vector<Slice> result;
  if (count <= 1) return {{0, length}};
  const int64_t step = round_up(ceil_div(length, count), kPanelStep);
  for (int64_t first = 0; first < length; first += step)
    result.push_back({first, std::min(step, length - first)});
  return result;
}

template <class Body>  // body(first_row, rows)
void for_rows(int64_t rows, int64_t columns, const Body& body) {
  parallel_for(0, rows, grain_of_rows(columns),
               [&](int64_t begin, int64_t end) { body(begin, end - begin); });
}

// Part of a matrix whose rows are `stride` apart, to dense FP32 rows.
void widen_part(const void* matrix, int64_t stride, Slice rows, Slice columns, float* to) {
  const auto* from = static_cast<const uint16_t*>(matrix) + rows.first * stride + columns.first;
  for_rows(rows.count, columns.count, [&](int64_t first, int64_t count) {
    to_fp32_rows(from + first * stride, static_cast<size_t>(count),
                 static_cast<size_t>(columns.count), static_cast<size_t>(stride),
                 to + first * columns.count);
  });
}

// The same to blocks.
void widen_to_blocks(const void* matrix, int64_t stride, Slice rows, Slice columns,
                     const BlockedLayout& to_layout, float* to) {
  const auto* from = static_cast<const uint16_t*>(matrix) + rows.first * stride + columns.first;
  const BlockedLayout& l = to_layout;
  const int64_t block = l.rows * l.columns, across = ceil_div(columns.count, l.columns);
  const auto widen = [&](int64_t row, int64_t column, float* out) {
    const int64_t height = std::min(l.rows, rows.count - row),
                  width = std::min(l.columns, columns.count - column);
    const uint16_t* first = from + row * stride + column;
    if (height == l.rows && width == l.columns) {
      to_fp32_rows(first, static_cast<size_t>(height), static_cast<size_t>(width),
                   static_cast<size_t>(stride), out);
      return;
    }
    std::fill_n(out, block, 0.0f);
    for (int64_t r = 0; r < height; ++r)
      to_fp32_rows(first + r * stride, 1, static_cast<size_t>(width), 0, out + r * l.columns);
  };
  for_rows(ceil_div(rows.count, l.rows) * across, block, [&](int64_t first, int64_t count) {
    for (int64_t i = first; i < first + count; ++i) {
      const int64_t row = i / across, column = i % across;
      widen(row * l.rows, column * l.columns, to + row * l.row_step + column * l.column_step);
    }
  });
}

void round_part(const float* from, void* matrix, int64_t stride, Slice rows, Slice columns) {
  auto* to = static_cast<uint16_t*>(matrix) + rows.first * stride + columns.first;
  for_rows(rows.count, columns.count, [&](int64_t first, int64_t count) {
    to_bf16_rows(from + first * columns.count, static_cast<size_t>(count),
                 static_cast<size_t>(columns.count), to + first * stride,
                 static_cast<size_t>(stride));
  });
}

class Widened final : public Gemm {
 public:
  Widened(const GemmShape& shape, GemmOperands operands)
      : shape_(shape),
        split_(longest(shape)),
        by_blas_(operands == GemmOperands::kFp32Blas || !onednn_missing().empty()) {
    const int64_t length = split_ == SplitAxis::kM   ? shape.m
                           : split_ == SplitAxis::kN ? shape.n
                                                     : shape.k;
    for (const Slice& slice : slices(length, floats_per_unit(shape, split_))) {
      Panel panel{{0, shape.m}, {0, shape.n}, {0, shape.k}};
      (split_ == SplitAxis::kM ? panel.m : split_ == SplitAxis::kN ? panel.n : panel.k) = slice;
      panels_.push_back(panel);
    }
    // oneDNN's own way of reading a transposed b costs little.
    if (by_blas_ || shape.b_transposed || !make_gemms(LayoutOfB::kBlocks))
      make_gemms(LayoutOfB::kRows);
    for (const Panel& panel : panels_) {
      a_floats_ = std::max(a_floats_, panel.m.count * panel.k.count);
      b_floats_ =
          std::max(b_floats_, panel.b.rows > 0 ? panel.b.size : panel.k.count * panel.n.count);
      if (!shape.fp32_result) sums_ = std::max(sums_, panel.m.count * panel.n.count);
      gemm_scratch_ = std::max(gemm_scratch_, panel.gemm->scratch_bytes());
    }
  }

  size_t scratch_bytes() const override {
    return bytes_of(a_floats_) + bytes_of(b_floats_) + bytes_of(sums_) + gemm_scratch_ + kLine;
  }

  void run(const void* a, const void* b, const void* bias, void* c, void* scratch,
           float scale) const override {
    auto* at = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<size_t>(scratch), kLine));
    const auto take = [&](size_t bytes) { return std::exchange(at, at + bytes); };
    auto* a32 = reinterpret_cast<float*>(take(bytes_of(a_floats_)));
    auto* b32 = reinterpret_cast<float*>(take(bytes_of(b_floats_)));
    auto* sums = reinterpret_cast<float*>(take(bytes_of(sums_)));
    const GemmShape& s = shape_;
    for (const Panel& p : panels_) {
      const bool first = &p == &panels_.front();
      // What the cut does not touch is widened once.
      if (first || split_ != SplitAxis::kN)
        s.a_transposed ? widen_part(a, s.lda, p.k, p.m, a32) : widen_part(a, s.lda, p.m, p.k, a32);
      if (first || split_ != SplitAxis::kM) widen_b(b, p, b32);
      if (!s.fp32_result && s.add && p.k.first == 0) widen_part(c, s.ldc, p.m, p.n, sums);
      const auto* its_bias =
          s.bias && p.k.first == 0 ? static_cast<const float*>(bias) + p.n.first : nullptr;
      float* result = s.fp32_result ? static_cast<float*>(c) + p.m.first * s.ldc + p.n.first : sums;
      p.gemm->run(a32, b32, its_bias, result, at, scale);
      if (!s.fp32_result && p.k.first + p.k.count == s.k) round_part(sums, c, s.ldc, p.m, p.n);
    }
  }

 private:
  static constexpr size_t kLine = 64;
  static size_t bytes_of(int64_t floats) {
    return round_up(static_cast<size_t>(floats) * sizeof(float), kLine);
  }

  enum class LayoutOfB : uint8_t { kRows, kBlocks };

  void widen_b(const void* b, const Panel& p, float* b32) const {
    if (p.b.rows > 0)
      widen_to_blocks(b, shape_.ldb, p.k, p.n, p.b, b32);
    else if (shape_.b_transposed)
      widen_part(b, shape_.ldb, p.n, p.k, b32);
    else
      widen_part(b, shape_.ldb, p.k, p.n, b32);
  }

  // False when oneDNN has no blocks for b, or other ones for another panel that shares it.
  bool make_gemms(LayoutOfB layout) {
    gemms_.clear();
    for (Panel& panel : panels_) {
      panel.b = {};
      panel.gemm = gemm_of(panel, layout);
      if (panel.gemm == nullptr) return false;
      if (split_ == SplitAxis::kM && panel.b != panels_.front().b) return false;
    }
    return true;
  }

  const Gemm* gemm_of(Panel& p, LayoutOfB layout) {
    GemmShape shape = shape_;
    shape.m = p.m.count;
    shape.n = p.n.count;
    shape.k = p.k.count;
    shape.lda = shape.a_transposed ? shape.m : shape.k;
    shape.ldb = shape.b_transposed ? shape.k : shape.n;
    shape.ldc = shape_.fp32_result ? shape_.ldc : shape.n;
    shape.fp32_result = true;
    shape.add = shape_.add || p.k.first > 0;
    shape.bias = shape_.bias && p.k.first == 0;
    auto& [gemm, its_layout] = gemms_[shape];
    if (gemm == nullptr)
      gemm = by_blas_                       ? make_blas(shape)
             : layout == LayoutOfB::kBlocks ? make_onednn_blocked(shape, its_layout)
                                            : make_onednn(shape, GemmOperands::kFp32);
    p.b = its_layout;
    return gemm.get();
  }

  GemmShape shape_;
  SplitAxis split_;
  bool by_blas_;
  std::map<GemmShape, std::pair<std::unique_ptr<Gemm>, BlockedLayout>> gemms_;
  std::vector<Panel> panels_;
  int64_t a_floats_ = 0, b_floats_ = 0, sums_ = 0;
  size_t gemm_scratch_ = 0;
};

}  // namespace

std::unique_ptr<Gemm> make_widened(const GemmShape& shape, GemmOperands operands) {
  return std::make_unique<Widened>(shape, operands);
}

}  // namespace octavo::engine::cpu
