#pragma once
// Sums over blocks inside one launch: every block leaves its part in global memory, and the one
// that comes last adds the parts up, in their order, so that the result does not depend on who that
// is.

#include "kernels/portable.h"

namespace octavo::kernels {

// Whether this block is the last of `blocks` that ask at this ticket; all threads of a block call,
// and all get the answer. What the threads of the others wrote before is then there to be read. The
// ticket is 0 before a launch, and 0 again after it. `answer` is shared memory.
template <class Block>
OCTAVO_KERNEL_BODY bool is_last_block(Block& block, uint32_t* ticket, uint32_t blocks,
                                      uint32_t& answer) {
  block.fence();
  block.barrier();
  if (block.thread() == 0) {
    answer = block.atomic_add(ticket, 1) + 1;
    if (answer == blocks) *ticket = 0;
  }
  block.barrier();
  const bool last = answer == blocks;
  block.barrier();  // `answer` may be written again
  if (last) block.fence();
  return last;
}

}  // namespace octavo::kernels
