#pragma once
// Which tensors of a step have a NaN or an infinity: one launch over all of them. It reads each
// byte once; what it writes is one word for a tensor that has one.

#include "kernels/block_table.h"
#include "kernels/portable.h"

namespace octavo::kernels {

struct FiniteTensor {
  const void* values = nullptr;
  int64_t count = 0;        // elements
  int64_t first_block = 0;  // of the launch: see plan_blocks()
  uint32_t* bad = nullptr;  // becomes 1 when an element is not finite, else is left as it was
  bool is_bf16 = true;      // or float32
};

struct FiniteArguments {
  const FiniteTensor* tensors;  // ascending by first_block
  int32_t count;
};

struct FiniteKernel {
  static constexpr int kThreads = 256;
  static constexpr bool kHasBarriers = true;
  static constexpr int64_t kTile = int64_t{kThreads} * kLane;
  static constexpr int64_t kElementsOfBlock = 16 * kTile;

  using Arguments = FiniteArguments;
  struct Shared {
    FiniteTensor tensor;
  };

  template <class Block>
  static OCTAVO_KERNEL_BODY void run(Block& block, Shared& shared, const Arguments& a) {
    if (block.thread() == 0) shared.tensor = entry_of_block(a.tensors, a.count, block.index());
    block.barrier();
    const FiniteTensor& t = shared.tensor;
    const int64_t begin = (block.index() - t.first_block) * kElementsOfBlock;
    const int64_t end = begin + kElementsOfBlock < t.count ? begin + kElementsOfBlock : t.count;
    const bool bad = t.is_bf16
                         ? has_bad(static_cast<const Bf16*>(t.values), begin, end, block.thread())
                         : has_bad(static_cast<const float*>(t.values), begin, end, block.thread());
    if (bad) block.atomic_max(t.bad, 1u);
  }

 private:
  template <class T>
  static OCTAVO_KERNEL_BODY bool has_bad(const T* values, int64_t begin, int64_t end, int thread) {
    constexpr uint32_t kExponent = 0x7F800000;  // all ones: not finite
    bool bad = false;
    for (int64_t i = begin + int64_t{thread} * kLane; i < end; i += kTile) {
      float x[kLane];
      load(values + i, end - i, 0, x);
      for (int k = 0; k < kLane; ++k)
        bad |= (std::bit_cast<uint32_t>(x[k]) & kExponent) == kExponent;
    }
    return bad;
  }
};

}  // namespace octavo::kernels
