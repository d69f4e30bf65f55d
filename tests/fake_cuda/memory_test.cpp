#include <cuda.h>

#include "device.h"

namespace octavo::fake_cuda {
namespace {

TEST(Memory, RunsOutAtTheLastByte) {
  void* first = nullptr;
  void* second = nullptr;
  ASSERT_EQ(cudaMalloc(&first, kMemory - 1000), cudaSuccess);
  EXPECT_EQ(free_memory(), 1000u);
  EXPECT_EQ(cudaMalloc(&second, 1001), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&second, 1000), cudaSuccess);
  EXPECT_EQ(free_memory(), 0u);
  EXPECT_EQ(cudaFree(first), cudaSuccess);
  EXPECT_EQ(cudaFree(second), cudaSuccess);
  EXPECT_EQ(free_memory(), kMemory);
}

TEST(Memory, EachDeviceHasItsOwn) {
  void* pointer = nullptr;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&pointer, kMemory), cudaSuccess);
  EXPECT_EQ(free_memory(), 0u);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(free_memory(), kMemory);
  cudaPointerAttributes attributes;
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, static_cast<char*>(pointer) + 5), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 1);
  EXPECT_EQ(cudaFree(pointer), cudaSuccess);  // from another device, as CUDA allows
  EXPECT_EQ(cudaFree(pointer), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

TEST(Memory, PeakAndCallsAreCounted) {
  api()->reset();
  void* pointer = nullptr;
  for (const std::size_t bytes : {4096, 8192, 512}) {
    ASSERT_EQ(cudaMalloc(&pointer, bytes), cudaSuccess);
    ASSERT_EQ(cudaFree(pointer), cudaSuccess);
  }
  const Counters now = counters();
  EXPECT_EQ(now.of(Kind::kMalloc), 3u);
  EXPECT_EQ(now.bytes_of(Kind::kMalloc), 12800u);
  EXPECT_EQ(now.of(Kind::kFree), 3u);
  EXPECT_EQ(now.memory_peak - now.memory_in_use, 8192u);
}

TEST(Memory, HostMemoryIsKnownForWhatItIs) {
  void* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(&pinned, 100), cudaSuccess);
  std::vector<char> pageable(100);
  cudaPointerAttributes attributes;
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, pinned), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, pageable.data()), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  EXPECT_EQ(free_memory(), kMemory);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST(Memory, CopiesAreMadeAndCounted) {
  std::vector<int> numbers = {1, 2, 3, 4};
  const DeviceArray<int> first(numbers);
  const DeviceArray<int> second(std::vector<int>(4, 0));
  void* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(&pinned, 16), cudaSuccess);
  api()->reset();
  EXPECT_EQ(cudaMemcpyAsync(second.data(), first.data(), 16, cudaMemcpyDefault, nullptr),
            cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(pinned, second.data(), 16, cudaMemcpyDeviceToHost, nullptr),
            cudaSuccess);
  EXPECT_EQ(static_cast<int*>(pinned)[3], 4);
  EXPECT_EQ(counters().host_waits(), 0u);
  EXPECT_EQ(cudaMemcpyAsync(numbers.data(), second.data(), 16, cudaMemcpyDeviceToHost, nullptr),
            cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(second.data(), 0, 8, nullptr), cudaSuccess);
  const Counters now = counters();
  EXPECT_EQ(now.of(Kind::kCopyOnDevice), 1u);
  EXPECT_EQ(now.of(Kind::kCopyToHost), 2u);
  EXPECT_EQ(now.bytes_of(Kind::kCopyToHost), 32u);
  EXPECT_EQ(now.pageable_copies, 1u);
  EXPECT_EQ(now.blocking_copies, 1u);  // to memory that is not pinned: the host waits
  EXPECT_EQ(now.of(Kind::kMemset), 1u);
  EXPECT_EQ(second.read(), (std::vector<int>{0, 0, 3, 4}));
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

// Memory that is reserved, created and mapped by three calls, as PyTorch's expandable segments are.
TEST(Memory, CreatedMemoryCountsUntilItIsNeitherHeldNorMapped) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  std::size_t piece = 0;
  ASSERT_EQ(cuMemGetAllocationGranularity(&piece, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
            CUDA_SUCCESS);
  CUdeviceptr addresses = 0;
  ASSERT_EQ(cuMemAddressReserve(&addresses, 4 * piece, 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(free_memory(), kMemory);
  CUmemGenericAllocationHandle first = 0;
  CUmemGenericAllocationHandle second = 0;
  ASSERT_EQ(cuMemCreate(&first, piece, &properties, 0), CUDA_SUCCESS);
  EXPECT_EQ(free_memory(), kMemory - piece);
  EXPECT_EQ(cuMemCreate(&second, kMemory, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemCreate(&second, piece + 1, &properties, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemMap(addresses, piece, 0, first, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(first), CUDA_SUCCESS);
  EXPECT_EQ(free_memory(), kMemory - piece);
  ASSERT_EQ(cuMemUnmap(addresses, piece), CUDA_SUCCESS);
  EXPECT_EQ(free_memory(), kMemory);
  EXPECT_EQ(cuMemAddressFree(addresses, 4 * piece), CUDA_SUCCESS);
}

}  // namespace
}  // namespace octavo::fake_cuda
