#pragma once
// Residual addition, RMSNorm or LayerNorm, and quantizing to E4M3 in one launch, as
// engine::RmsNorm and engine::LayerNorm have them.
//
// Bytes of an element: 2 for x, 2 for delta, 2 for the sum, 2 for the normed values or 1 for each
// copy of their codes: each is touched once, the row stays in registers.

#include "kernels/fp8_encode.h"
#include "kernels/portable.h"
#include "kernels/reduce.h"

namespace octavo::kernels {

struct NormArguments {
  const Bf16 *x, *delta;     // [rows, columns]; delta may be null: then x is the sum
  const Bf16 *gamma, *beta;  // [columns]; beta: of LayerNorm
  Bf16 *sum, *normed;        // [rows, columns]; the sum is rounded before the norm sees it; normed
                             // may be null
  float *mean, *rstd;        // [rows]; mean: of LayerNorm
  uint8_t* codes;            // [rows, columns] E4M3 of normed * *scale; null: not quantized
  uint8_t* column_codes;     // the same transposed, [columns, rows]; or null
  const float* scale;        // one number
  float* inverse;            // becomes 1 / *scale; or null
  uint32_t* amax;            // raised to the largest magnitude of normed, as float32 bits; or null
  int64_t rows;
  int32_t columns;
  float eps;
};

// kVectors: eights of elements that a thread has; a row has at most kColumns. kRows: rows that a
// block takes one after the other. With more than one it writes the transposed codes too: they wait
// in shared memory until kRows of them lie side by side.
template <bool kIsLayerNorm, int kThreadCount, int kVectors, int kRows>
struct NormKernel {
  static constexpr int kThreads = kThreadCount;
  static constexpr bool kHasBarriers = true;
  static constexpr int kColumns = kThreads * kLane * kVectors;
  static constexpr bool kTransposes = kRows > 1;
  static_assert(kRows == 1 || kRows % kLane == 0);

  using Arguments = NormArguments;
  struct Shared {
    alignas(8) uint8_t codes[kTransposes ? kRows * kColumns : 8];
    float per_warp[kThreads / kWarp];
  };
  using Row = float[kVectors][kLane];

  static constexpr int64_t blocks(int64_t rows) { return (rows + kRows - 1) / kRows; }

  // blocks(rows) of them.
  template <class Block>
  static OCTAVO_KERNEL_BODY void run(Block& block, Shared& shared, const Arguments& a) {
    const int64_t first = block.index() * kRows;
    uint32_t largest = 0;
    for (int n = 0; n < kRows && first + n < a.rows; ++n)
      run_row(block, shared, a, first + n, shared.codes + (kTransposes ? n * kColumns : 0),
              largest);
    if constexpr (kTransposes) store_transposed(block, shared, a, first);
    if (a.inverse != nullptr && block.index() == 0 && block.thread() == 0)
      *a.inverse = 1.0f / *a.scale;
    if (a.amax == nullptr) return;
    largest =
        join_lanes<kWarp>(block, largest, [](uint32_t x, uint32_t y) { return x > y ? x : y; });
    if (block.thread() % kWarp == 0) block.atomic_max(a.amax, largest);
  }

 private:
  template <class Block>
  static OCTAVO_KERNEL_BODY void run_row(Block& block, Shared& shared, const Arguments& a,
                                         int64_t at, uint8_t* kept, uint32_t& largest) {
    Row row;
    load_row(block, a, at, row);
    const auto add = [](float x, float y) { return x + y; };
    const auto columns = static_cast<float>(a.columns);
    // Two divisions of a row would spill a register on 8.9, and a share kept for one does on 9.0.
    const float share = kIsLayerNorm ? 1.0f / columns : 0.0f;
    float mean = 0;
    if constexpr (kIsLayerNorm) {
      float total = 0;
      OCTAVO_UNROLL
      for (int n = 0; n < kVectors; ++n)
        for (int k = 0; k < kLane; ++k) total += row[n][k];  // zero behind the end
      mean = join_threads<kThreads>(block, shared.per_warp, total, add) * share;
    }
    float squares = 0;
    OCTAVO_UNROLL
    for (int n = 0; n < kVectors; ++n)
      for (int k = 0; k < kLane; ++k) {
        const float centered = row[n][k] - mean;
        if (column_of<kThreads>(block, n) + k < a.columns)
          squares = std::fma(centered, centered, squares);
      }
    squares = join_threads<kThreads>(block, shared.per_warp, squares, add);
    const float variance = kIsLayerNorm ? squares * share : squares / columns;
    const float rstd = 1.0f / std::sqrt(variance + a.eps);
    if (block.thread() == 0) {
      if constexpr (kIsLayerNorm) a.mean[at] = mean;
      a.rstd[at] = rstd;
    }
    store_row(block, a, at, row, mean, rstd, kept, largest);
  }

  template <class Block>
  static OCTAVO_KERNEL_BODY void load_row(const Block& block, const Arguments& a, int64_t at,
                                          Row& row) {
    const int64_t start = at * a.columns;
    OCTAVO_UNROLL
    for (int n = 0; n < kVectors; ++n) {
      const int64_t c = column_of<kThreads>(block, n), count = a.columns - c;
      load(a.x + start + c, count, 0, row[n]);
      if (a.delta == nullptr) continue;
      float delta[kLane];
      load(a.delta + start + c, count, 0, delta);
      Bf16 sum[kLane];
      for (int k = 0; k < kLane; ++k) {
        sum[k] = nearest_bf16(row[n][k] + delta[k]);
        row[n][k] = widened(sum[k]);
      }
      store_as_is(sum, count, a.sum + start + c);
    }
  }

  template <class Block>
  static OCTAVO_KERNEL_BODY void store_row(Block& block, const Arguments& a, int64_t at,
                                           const Row& row, float mean, float rstd, uint8_t* kept,
                                           uint32_t& largest) {
    const int64_t start = at * a.columns;
    const float scale = a.codes != nullptr ? *a.scale : 1.0f;
    OCTAVO_UNROLL
    for (int n = 0; n < kVectors; ++n) {
      const int64_t c = column_of<kThreads>(block, n), count = a.columns - c;
      float gamma[kLane], beta[kLane];
      load(a.gamma + c, count, 0, gamma);
      if constexpr (kIsLayerNorm) load(a.beta + c, count, 0, beta);
      Bf16 normed[kLane];
      uint8_t codes[kLane];
      for (int k = 0; k < kLane; ++k) {
        const float hat = (row[n][k] - mean) * rstd;
        normed[k] = nearest_bf16(kIsLayerNorm ? std::fma(hat, gamma[k], beta[k]) : hat * gamma[k]);
        const uint32_t magnitude = static_cast<uint32_t>(normed[k] & 0x7FFF) << 16;
        if (k < count && magnitude <= 0x7F800000 && magnitude > largest) largest = magnitude;
        codes[k] = encode_nearest<fp8::Format::kE4M3>(widened(normed[k]) * scale);
      }
      if (a.normed != nullptr) store_as_is(normed, count, a.normed + start + c);
      if (a.codes != nullptr) store_bytes(codes, count, a.codes + start + c);
      if constexpr (kTransposes) *reinterpret_cast<Bits64*>(kept + c) = packed_bytes(codes);
    }
  }

  // A thread has the codes of a column's kRows rows.
  template <class Block>
  static OCTAVO_KERNEL_BODY void store_transposed(Block& block, const Shared& shared,
                                                  const Arguments& a, int64_t first) {
    block.barrier();
    for (int32_t c = block.thread(); c < a.columns; c += kThreads)
      for (int part = 0; part < kRows; part += kLane) {
        uint8_t codes[kLane];
        for (int k = 0; k < kLane; ++k) codes[k] = shared.codes[(part + k) * kColumns + c];
        store_bytes(codes, a.rows - first - part, a.column_codes + c * a.rows + first + part);
      }
  }
};

}  // namespace octavo::kernels
