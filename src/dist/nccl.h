#pragma once
// NCCL's backend of c10d. It is in the GPU module: only a machine with a GPU loads it.

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>

namespace octavo::dist {

// Before the first group, and before there are threads: c10d's monitor over NCCL would have every
// rank ask the store once a second whether another one writes its flight record
// (TORCH_NCCL_DUMP_ON_TIMEOUT, on by default), thousands of requests a second in a large run. Who
// hangs is said by octavo's own watch. A value that the user has set stays.
void keep_nccl_from_polling();

// Ranks of the same color that split the communicator of another group of ours. Cheaper than one of
// its own, which N ranks bootstrap through one of them; all ranks of `from` must make the call, and
// nothing may be under way there.
struct NcclSplit {
  c10::intrusive_ptr<c10d::Backend> from;  // null: a communicator of its own
  int color = 0;
};

// Connected when it returns.
c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int size, at::Device device,
                                            std::chrono::milliseconds timeout,
                                            const NcclSplit& split);

}  // namespace octavo::dist
