#pragma once
// What the tests of the fake CUDA device share. Options are read once per process, so they are set
// before main.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "fake_cuda/fake_cuda.h"

namespace octavo::fake_cuda {

inline constexpr std::size_t kMemory = 4 << 20;  // of each of two devices

// Memory of the device, filled from a vector; given back at the end.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : count_(values.size()) {
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&data_), bytes()), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice), cudaSuccess);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  T* data() const { return data_; }
  std::vector<T> read() const {
    std::vector<T> values(count_);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }

 private:
  std::size_t bytes() const { return count_ * sizeof(T); }
  T* data_ = nullptr;
  std::size_t count_;
};

inline Counters counters() {
  Counters now{};
  api()->counters(&now);
  return now;
}

inline std::vector<Event> events() {
  std::vector<Event> all(api()->events(nullptr, 0, 0));
  api()->events(all.data(), 0, all.size());
  return all;
}

inline std::vector<Gemm> gemms() {
  std::vector<Gemm> all(api()->gemms(nullptr, 0, 0));
  api()->gemms(all.data(), 0, all.size());
  return all;
}

inline std::size_t free_memory() {
  std::size_t free = 0;
  std::size_t total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(total, kMemory);
  return free;
}

// A host function that stands for a kernel.
inline void some_kernel() {}
inline cudaError_t launch_some_kernel(unsigned threads, cudaStream_t stream = nullptr,
                                      std::size_t shared = 0) {
  return cudaLaunchKernel(reinterpret_cast<const void*>(&some_kernel), dim3(4), dim3(threads),
                          nullptr, shared, stream);
}

}  // namespace octavo::fake_cuda
