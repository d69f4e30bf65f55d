#pragma once
// Gradients of RMSNorm and LayerNorm with the residual's added, and of gamma and beta, in one
// launch, as engine::RmsNorm::backward and engine::LayerNorm::backward have them.
//
// Bytes of an element: 2 each for d_normed, d_sum, the sum and the result. Gradients of gamma and
// beta are summed in registers over the rows of a block, and over blocks by the last ones
// (last_block.h): first of each group, then of all.

#include "kernels/last_block.h"
#include "kernels/portable.h"
#include "kernels/reduce.h"

namespace octavo::kernels {

struct NormBackwardArguments {
  const Bf16 *d_normed, *d_sum;  // [rows, columns]; d_sum may be null
  const Bf16 *sum, *gamma;       // what the norm read
  const float *mean, *rstd;      // [rows]; mean: of LayerNorm
  Bf16* dx;                      // [rows, columns], rounded once
  float *dgamma, *dbeta;         // [columns]; dbeta: of LayerNorm; both null: frozen
  float* parts;                  // see norm_backward_scratch()
  uint32_t* tickets;             // zeros; see norm_backward_scratch()
  int64_t rows;
  int32_t columns;
  bool adds;  // to dgamma and dbeta, else overwrites them
};

constexpr int kNormGroup = 16;  // blocks whose parts are added up first

// kVectors: eights of elements that a thread has; a row has at most kColumns. kMostBlocks does not
// depend on the device: nor do the sums.
template <bool kIsLayerNorm, int kThreadCount, int kVectors, int kMostBlocks>
struct NormBackwardKernel {
  static constexpr int kThreads = kThreadCount;
  static constexpr bool kHasBarriers = true;
  static constexpr int kColumns = kThreads * kLane * kVectors;
  static constexpr int kSums = kIsLayerNorm ? 2 : 1;  // of gamma, and of beta
  static_assert(kMostBlocks % kNormGroup == 0);

  using Arguments = NormBackwardArguments;
  struct Two {
    float a, b;
  };
  struct Shared {
    Two per_warp[kThreads / kWarp];
    uint32_t answer;
  };
  using Sums = float[kSums][kVectors][kLane];

  static constexpr int64_t blocks(int64_t rows) { return rows < kMostBlocks ? rows : kMostBlocks; }

  // blocks(rows) of them, each with every blocks(rows)-th row.
  template <class Block>
  static OCTAVO_KERNEL_BODY void run(Block& block, Shared& shared, const Arguments& a) {
    Sums sums;
    OCTAVO_UNROLL
    for (int s = 0; s < kSums; ++s)
      for (int n = 0; n < kVectors; ++n)
        for (int k = 0; k < kLane; ++k) sums[s][n][k] = 0;
    for (int64_t row = block.index(); row < a.rows; row += block.count())
      run_row(block, shared, a, row, sums);
    if (a.dgamma != nullptr) join_blocks(block, shared, a, sums);
  }

 private:
  template <class Block>
  static OCTAVO_KERNEL_BODY void run_row(Block& block, Shared& shared, const Arguments& a,
                                         int64_t row, Sums& sums) {
    const int64_t start = row * a.columns;
    const float mean = kIsLayerNorm ? a.mean[row] : 0.0f, rstd = a.rstd[row];
    float hat[kVectors][kLane], g[kVectors][kLane];
    Two total{0, 0};  // of g * hat, and of g
    OCTAVO_UNROLL
    for (int n = 0; n < kVectors; ++n) {
      const int64_t c = column_of<kThreads>(block, n), count = a.columns - c;
      float gamma[kLane];
      load(a.sum + start + c, count, 0, hat[n]);  // behind the end g is 0
      load(a.d_normed + start + c, count, 0, g[n]);
      load(a.gamma + c, count, 0, gamma);
      for (int k = 0; k < kLane; ++k) {
        hat[n][k] = (hat[n][k] - mean) * rstd;
        sums[0][n][k] = std::fma(g[n][k], hat[n][k], sums[0][n][k]);
        if constexpr (kIsLayerNorm) sums[1][n][k] += g[n][k];
        g[n][k] *= gamma[k];
        total.a = std::fma(g[n][k], hat[n][k], total.a);
        total.b += g[n][k];
      }
    }
    const auto add = [](const Two& x, const Two& y) { return Two{x.a + y.a, x.b + y.b}; };
    total = join_threads<kThreads>(block, shared.per_warp, total, add);
    const auto columns = static_cast<float>(a.columns);
    const float of_hat = total.a / columns, shift = kIsLayerNorm ? total.b / columns : 0.0f;
    OCTAVO_UNROLL
    for (int n = 0; n < kVectors; ++n) {
      const int64_t c = column_of<kThreads>(block, n), count = a.columns - c;
      float dx[kLane];
      if (a.d_sum != nullptr) {
        load(a.d_sum + start + c, count, 0, dx);
      } else {
        for (int k = 0; k < kLane; ++k) dx[k] = 0;
      }
      for (int k = 0; k < kLane; ++k)
        dx[k] = std::fma(std::fma(-hat[n][k], of_hat, g[n][k] - shift), rstd, dx[k]);
      store(dx, count, a.dx + start + c);
    }
  }

  // The parts of a block, or of a group: [kSums, columns].
  static OCTAVO_KERNEL_BODY float* part_of(const Arguments& a, int64_t block) {
    return a.parts + block * kSums * a.columns;
  }

  // Calls body(sum of gamma or of beta, vector, where it begins in a part, how many there are).
  template <class Block, class Body>
  static OCTAVO_KERNEL_BODY void for_each(const Block& block, const Arguments& a,
                                          const Body& body) {
    OCTAVO_UNROLL
    for (int s = 0; s < kSums; ++s) {
      OCTAVO_UNROLL
      for (int n = 0; n < kVectors; ++n) {
        const int64_t c = column_of<kThreads>(block, n);
        body(s, n, int64_t{s} * a.columns + c, a.columns - c);
      }
    }
  }

  // sums = those of `count` parts, `step` blocks apart, in their order.
  template <class Block>
  static OCTAVO_KERNEL_BODY void add_parts(const Block& block, const Arguments& a, int64_t first,
                                           int64_t count, int64_t step, Sums& sums) {
    for (int64_t i = 0; i < count; ++i)
      for_each(block, a, [&](int s, int n, int64_t at, int64_t left) {
        float part[kLane];
        load(part_of(a, first + i * step) + at, left, 0, part);
        for (int k = 0; k < kLane; ++k) sums[s][n][k] = i == 0 ? part[k] : sums[s][n][k] + part[k];
      });
  }

  template <class Block>
  static OCTAVO_KERNEL_BODY void store_part(const Block& block, const Arguments& a, int64_t to,
                                            const Sums& sums) {
    for_each(block, a, [&](int s, int n, int64_t at, int64_t left) {
      store_as_is(sums[s][n], left, part_of(a, to) + at);
    });
  }

  template <class Block>
  static OCTAVO_KERNEL_BODY void join_blocks(Block& block, Shared& shared, const Arguments& a,
                                             Sums& sums) {
    const int64_t groups = (block.count() + kNormGroup - 1) / kNormGroup;
    const int64_t group = block.index() / kNormGroup, first = group * kNormGroup;
    const int64_t left = block.count() - first, members = left < kNormGroup ? left : kNormGroup;
    store_part(block, a, block.index(), sums);
    if (!is_last_block(block, a.tickets + 1 + group, static_cast<uint32_t>(members), shared.answer))
      return;
    add_parts(block, a, first, members, 1, sums);
    store_part(block, a, first, sums);
    if (!is_last_block(block, a.tickets, static_cast<uint32_t>(groups), shared.answer)) return;
    add_parts(block, a, 0, groups, kNormGroup, sums);
    for_each(block, a, [&](int s, int n, int64_t at, int64_t there) {
      float* out = (s == 0 ? a.dgamma : a.dbeta) + (at - int64_t{s} * a.columns);
      if (a.adds) {
        float before[kLane];
        load(out, there, 0, before);
        for (int k = 0; k < kLane; ++k) sums[s][n][k] += before[k];
      }
      store_as_is(sums[s][n], there, out);
    });
  }
};

}  // namespace octavo::kernels
