#pragma once
// Cross-entropy over BF16 logits, which become their gradient: engine::CrossEntropy in two
// launches.
//
// Bytes of a logit: 2 read for the softmax's sum, 2 read again (from the L2 cache where a row is
// still there) and 2 written. One block has one row. The sum is kept beside the largest logit so
// far and is rescaled when a larger one comes, so that one pass over the row is enough for both.

#include "kernels/portable.h"
#include "kernels/reduce.h"

namespace octavo::kernels {

struct LossSums {
  double nll = 0, z = 0;  // -log p(target); logsumexp^2
};

struct SoftmaxSum {
  float max, sum;  // logsumexp = max + log(sum)

  static OCTAVO_ON_BOTH SoftmaxSum none() { return {-3.402823466e38f, 0}; }
  // A NaN is no maximum but makes the sum NaN.
  OCTAVO_ON_BOTH SoftmaxSum joined(const SoftmaxSum& other) const {
    const float larger = max > other.max ? max : other.max;
    return {larger, sum * std::exp(max - larger) + other.sum * std::exp(other.max - larger)};
  }
};

struct CrossEntropyArguments {
  Bf16* logits;            // [rows, columns]
  const int32_t* targets;  // [rows]; negative: ignored
  LossSums* of_rows;       // [rows]
  int64_t rows;
  int32_t columns, classes;  // columns from `classes` on are padding
  float grad_scale, z_weight;
  bool want_gradient;
};

struct CrossEntropyKernel {
  static constexpr int kThreads = 256;
  static constexpr bool kHasBarriers = true;

  using Arguments = CrossEntropyArguments;
  struct Shared {
    SoftmaxSum per_warp[kThreads / kWarp];
  };

  // One block for each row.
  template <class Block>
  static OCTAVO_KERNEL_BODY void run(Block& block, Shared& shared, const Arguments& a) {
    const int64_t row = block.index();
    Bf16* logits = a.logits + row * a.columns;
    const int32_t target = a.targets[row];
    if (target < 0) {  // the same for all threads
      if (block.thread() == 0) a.of_rows[row] = {0, 0};
      if (a.want_gradient) write_gradient(block, logits, a, target, SoftmaxSum{0, 1}, 0);
      return;
    }
    const float at_target = widened(logits[target]);
    // Its barriers also separate this reading from the gradient's writing.
    const SoftmaxSum sum = join_threads<kThreads>(
        block, shared.per_warp, sum_of_thread(block, logits, a.classes),
        [](const SoftmaxSum& x, const SoftmaxSum& y) { return x.joined(y); });
    const float lse = sum.max + std::log(sum.sum);
    if (block.thread() == 0)
      a.of_rows[row] = {static_cast<double>(lse) - at_target, static_cast<double>(lse) * lse};
    if (!a.want_gradient) return;
    const float factor = (1 + 2 * a.z_weight * lse) * a.grad_scale / sum.sum;
    write_gradient(block, logits, a, target, sum, factor);
  }

 private:
  template <class Block>
  static OCTAVO_KERNEL_BODY SoftmaxSum sum_of_thread(Block& block, const Bf16* logits,
                                                     int32_t classes) {
    SoftmaxSum sum = SoftmaxSum::none();
    for (int64_t i = int64_t{block.thread()} * kLane; i < classes; i += int64_t{kThreads} * kLane) {
      float x[kLane];
      load(logits + i, classes - i, SoftmaxSum::none().max, x);
      float largest = sum.max;
      for (int k = 0; k < kLane; ++k) largest = x[k] > largest ? x[k] : largest;
      float total = sum.sum * std::exp(sum.max - largest);
      for (int k = 0; k < kLane; ++k)
        if (i + k < classes) total += std::exp(x[k] - largest);
      sum = {largest, total};
    }
    return sum;
  }

  // factor * exp(logit - max), less grad_scale at the target; zero in padding, and in all of a row
  // that is ignored.
  template <class Block>
  static OCTAVO_KERNEL_BODY void write_gradient(Block& block, Bf16* logits, const Arguments& a,
                                                int32_t target, const SoftmaxSum& sum,
                                                float factor) {
    const int32_t classes = target < 0 ? 0 : a.classes;
    for (int64_t i = int64_t{block.thread()} * kLane; i < a.columns;
         i += int64_t{kThreads} * kLane) {
      float x[kLane];
      load(logits + i, classes - i, 0, x);
      for (int k = 0; k < kLane; ++k) {
        const float p = i + k < classes ? std::exp(x[k] - sum.max) * factor : 0.0f;
        x[k] = i + k == target ? p - a.grad_scale : p;
      }
      store(x, a.columns - i, logits + i);
    }
  }
};

// The rows' sums in one, in a fixed order. One block.
struct SumLossesKernel {
  static constexpr int kThreads = 256;
  static constexpr bool kHasBarriers = true;

  struct Arguments {
    const LossSums* of_rows;
    int64_t rows;
    LossSums* total;
  };
  struct Shared {
    double per_warp[kThreads / kWarp];
  };

  template <class Block>
  static OCTAVO_KERNEL_BODY void run(Block& block, Shared& shared, const Arguments& a) {
    double nll = 0, z = 0;
    for (int64_t row = block.thread(); row < a.rows; row += kThreads) {
      nll += a.of_rows[row].nll;
      z += a.of_rows[row].z;
    }
    const auto add = [](double x, double y) { return x + y; };
    nll = join_threads<kThreads>(block, shared.per_warp, nll, add);
    z = join_threads<kThreads>(block, shared.per_warp, z, add);
    if (block.thread() == 0) *a.total = {nll, z};
  }
};

}  // namespace octavo::kernels
