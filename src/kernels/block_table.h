#pragma once
// One launch over a table of tensors: each entry has its number of elements (`count`) and the first
// of its blocks in the launch (`first_block`, ascending).

#include "kernels/portable.h"

namespace octavo::kernels {

// Gives every entry its blocks; returns how many blocks the launch has.
template <class Kernel, class Entry>
int64_t plan_blocks(Entry* table, int64_t count) {
  int64_t blocks = 0;
  for (int64_t i = 0; i < count; ++i) {
    table[i].first_block = blocks;
    blocks += (table[i].count + Kernel::kElementsOfBlock - 1) / Kernel::kElementsOfBlock;
  }
  return blocks;
}

// The entry that a block works on. Entries without elements have no block.
template <class Entry>
OCTAVO_KERNEL_BODY const Entry& entry_of_block(const Entry* table, int count, int64_t block) {
  int low = 0, high = count;  // the entry is in [low, high)
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (table[middle].first_block <= block)
      low = middle;
    else
      high = middle;
  }
  return table[low];
}

}  // namespace octavo::kernels
