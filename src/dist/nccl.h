#pragma once
// NCCL's backend of c10d. It is in the GPU module: only a machine with a GPU loads it.

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>

namespace octavo::dist {

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int size, at::Device device,
                                            std::chrono::milliseconds timeout);

}  // namespace octavo::dist
