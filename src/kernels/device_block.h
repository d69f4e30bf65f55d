#pragma once
// What a kernel's body sees of its block on a device: for .cu files alone. host_launch.h has the
// same for the host.

#include "kernels/reduce.h"

namespace octavo::kernels {

class DeviceBlock {
 public:
  __device__ int64_t index() const { return blockIdx.x; }
  __device__ int64_t count() const { return gridDim.x; }
  __device__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ void barrier() { __syncthreads(); }

  template <class T>
  __device__ T shuffle_xor(T value, int mask) {
    static_assert(sizeof(T) % sizeof(uint32_t) == 0);
    struct Words {
      uint32_t at[sizeof(T) / sizeof(uint32_t)];
    };
    auto words = std::bit_cast<Words>(value);
    for (uint32_t& word : words.at) word = __shfl_xor_sync(0xFFFFFFFF, word, mask);
    return std::bit_cast<T>(words);
  }

  __device__ void atomic_max(uint32_t* at, uint32_t value) { atomicMax(at, value); }
  __device__ uint32_t atomic_add(uint32_t* at, uint32_t value) { return atomicAdd(at, value); }
  // What this thread wrote is seen by other blocks before what it writes next.
  __device__ void fence() { __threadfence(); }
};

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads)
    on_device(const __grid_constant__ typename Kernel::Arguments arguments) {
  // Bytes, since shared memory cannot have a constructor.
  __shared__ alignas(16) unsigned char bytes[sizeof(typename Kernel::Shared)];
  DeviceBlock block;
  Kernel::run(block, reinterpret_cast<typename Kernel::Shared&>(bytes), arguments);
}

}  // namespace octavo::kernels
