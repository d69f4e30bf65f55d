#pragma once
// One value of the values of several threads. The order of additions is a fixed tree, so a result
// does not depend on which warp is faster.

#include "kernels/portable.h"

namespace octavo::kernels {

constexpr int kWarp = 32;

// Of kWidth neighbouring lanes, a power of two; each of them gets it. All lanes of a warp must
// call. `join` must not mind the order of its two arguments: lanes have them the other way round.
template <int kWidth, class Block, class T, class Join>
OCTAVO_KERNEL_BODY T join_lanes(Block& block, T value, const Join& join) {
  for (int mask = kWidth / 2; mask > 0; mask /= 2)
    value = join(value, block.shuffle_xor(value, mask));
  return value;
}

// Of all threads of a block; each gets it. `per_warp` is shared memory with a place for every warp.
template <int kThreads, class Block, class T, class Join>
OCTAVO_KERNEL_BODY T join_threads(Block& block, T (&per_warp)[kThreads / kWarp], T value,
                                  const Join& join) {
  value = join_lanes<kWarp>(block, value, join);
  if (block.thread() % kWarp == 0) per_warp[block.thread() / kWarp] = value;
  block.barrier();
  T total = per_warp[0];
  for (int warp = 1; warp < kThreads / kWarp; ++warp) total = join(total, per_warp[warp]);
  block.barrier();  // per_warp may be written again
  return total;
}

}  // namespace octavo::kernels
