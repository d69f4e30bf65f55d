#pragma once
// Residual addition, RMSNorm or LayerNorm, and quantizing to E4M3 in one launch, as
// engine::RmsNorm and engine::LayerNorm have them.
//
// Bytes of an element: 2 for x, 2 for delta, 2 for the sum, 2 for the normed values (1 more for
// their codes): each is touched once, the row stays in registers. One block has one row.

#include "kernels/fp8_encode.h"
#include "kernels/portable.h"
#include "kernels/reduce.h"

namespace octavo::kernels {

struct NormArguments {
  const Bf16 *x, *delta;     // [rows, columns]; delta may be null: then x is the sum
  const Bf16 *gamma, *beta;  // [columns]; beta: of LayerNorm
  Bf16 *sum, *normed;        // [rows, columns]; the sum is rounded before the norm sees it
  float *mean, *rstd;        // [rows]; mean: of LayerNorm
  uint8_t* codes;            // [rows, columns] E4M3 of normed * *scale; null: not quantized
  const float* scale;        // one number
  uint32_t* amax;            // raised to the largest magnitude of normed, as float32 bits; or null
  int64_t rows;
  int32_t columns;
  float eps;
};

// kVectors: eights of elements that a thread has; a row has at most kColumns.
template <bool kIsLayerNorm, int kVectors>
struct NormKernel {
  static constexpr int kThreads = 256;
  static constexpr bool kHasBarriers = true;
  static constexpr int kColumns = kThreads * kLane * kVectors;

  using Arguments = NormArguments;
  struct Shared {
    float per_warp[kThreads / kWarp];
  };

  // One block for each row.
  template <class Block>
  static OCTAVO_KERNEL_BODY void run(Block& block, Shared& shared, const Arguments& a) {
    float row[kVectors][kLane];
    load_row(block, a, row);
    const auto add = [](float x, float y) { return x + y; };
    const auto columns = static_cast<float>(a.columns);
    float mean = 0;
    if constexpr (kIsLayerNorm) {
      float total = 0;
      OCTAVO_UNROLL
      for (int n = 0; n < kVectors; ++n)
        for (int k = 0; k < kLane; ++k) total += row[n][k];  // zero behind the end
      mean = join_threads<kThreads>(block, shared.per_warp, total, add) / columns;
    }
    float squares = 0;
    OCTAVO_UNROLL
    for (int n = 0; n < kVectors; ++n)
      for (int k = 0; k < kLane; ++k) {
        const float centered = row[n][k] - mean;
        if (column(block, n) + k < a.columns) squares = std::fma(centered, centered, squares);
      }
    squares = join_threads<kThreads>(block, shared.per_warp, squares, add);
    const float rstd = 1.0f / std::sqrt(squares / columns + a.eps);
    if (block.thread() == 0) {
      if constexpr (kIsLayerNorm) a.mean[block.index()] = mean;
      a.rstd[block.index()] = rstd;
    }
    store_row(block, a, row, mean, rstd);
  }

 private:
  template <class Block>
  static OCTAVO_KERNEL_BODY int64_t column(const Block& block, int n) {
    return (int64_t{n} * kThreads + block.thread()) * kLane;
  }

  template <class Block>
  static OCTAVO_KERNEL_BODY void load_row(const Block& block, const Arguments& a,
                                          float (&row)[kVectors][kLane]) {
    const int64_t start = block.index() * a.columns;
    OCTAVO_UNROLL
    for (int n = 0; n < kVectors; ++n) {
      const int64_t c = column(block, n), count = a.columns - c;
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
  static OCTAVO_KERNEL_BODY void store_row(Block& block, const Arguments& a,
                                           const float (&row)[kVectors][kLane], float mean,
                                           float rstd) {
    const int64_t start = block.index() * a.columns;
    const float scale = a.codes != nullptr ? *a.scale : 1.0f;
    uint32_t largest = 0;
    OCTAVO_UNROLL
    for (int n = 0; n < kVectors; ++n) {
      const int64_t c = column(block, n), count = a.columns - c;
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
      store_as_is(normed, count, a.normed + start + c);
      if (a.codes != nullptr) store_bytes(codes, count, a.codes + start + c);
    }
    if (a.amax == nullptr) return;
    largest =
        join_lanes<kWarp>(block, largest, [](uint32_t x, uint32_t y) { return x > y ? x : y; });
    if (block.thread() % kWarp == 0) block.atomic_max(a.amax, largest);
  }
};

}  // namespace octavo::kernels
