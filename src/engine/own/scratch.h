#pragma once
// What a launch that sums over blocks writes for its own use (kernels/last_block.h).

#include <ATen/core/Tensor.h>

#include "kernels/kernels.h"

namespace octavo::engine::own {

struct ScratchMemory {
  at::Tensor parts, tickets;  // to be held until the launch is enqueued
  float* parts_data() const { return parts.mutable_data_ptr<float>(); }
  uint32_t* tickets_data() const {
    return reinterpret_cast<uint32_t*>(tickets.mutable_data_ptr<int32_t>());
  }
};

// For a launch on the device of `tensor`. Tickets are made once for each device, in the first steps
// and not while a graph is recorded, and every launch leaves them as zeros. So launches that sum
// over blocks must follow each other: octavo computes on one stream at a time, and a recorded step
// is replayed where an eager one would run.
ScratchMemory scratch_for(const at::Tensor& tensor, const kernels::Scratch& wanted);

}  // namespace octavo::engine::own
