#include <cuda.h>

#include "device.h"

namespace octavo::fake_cuda {
namespace {

// As ctest sets them; here too, so that the program can be run by hand.
[[maybe_unused]] const bool kOptionsSet = [] {
  setenv("OCTAVO_FAKE_CUDA_MEMORY", std::to_string(kMemory).c_str(), 1);
  setenv("OCTAVO_FAKE_CUDA_DEVICES", "2", 1);
  setenv("OCTAVO_FAKE_CUDA_COMPUTE", "1", 1);
  setenv("OCTAVO_FAKE_CUDA_CAPABILITY", "90", 1);
  return true;
}();

TEST(Options, SayWhichDeviceIsFake) {
  int count = 0;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 2);
  cudaDeviceProp properties;
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 1), cudaSuccess);
  EXPECT_STREQ(properties.name, "fake GPU, compute capability 9.0");
  EXPECT_EQ(properties.major, 9);
  EXPECT_EQ(properties.minor, 0);
  EXPECT_EQ(properties.multiProcessorCount, 132);
  EXPECT_EQ(properties.totalGlobalMem, kMemory);
  int clusters = 0;
  EXPECT_EQ(cudaDeviceGetAttribute(&clusters, cudaDevAttrClusterLaunch, 0), cudaSuccess);
  EXPECT_EQ(clusters, 1);
}

TEST(Options, ADeviceBeyondTheLastIsRefused) {
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_STREQ(cudaGetErrorString(cudaErrorInvalidDevice), "invalid device ordinal");
}

TEST(Options, DriverFunctionsAreFoundByName) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult status{};
  ASSERT_EQ(cudaGetDriverEntryPointByVersion("cuMemGetInfo", &function, 12000, 0, &status),
            cudaSuccess);
  EXPECT_EQ(status, cudaDriverEntryPointSuccess);
  std::size_t free = 0;
  std::size_t total = 0;
  EXPECT_EQ(reinterpret_cast<CUresult (*)(std::size_t*, std::size_t*)>(function)(&free, &total),
            CUDA_SUCCESS);
  EXPECT_EQ(total, kMemory);
  ASSERT_EQ(cudaGetDriverEntryPointByVersion("cuNoSuchThing", &function, 12000, 0, &status),
            cudaSuccess);
  EXPECT_EQ(status, cudaDriverEntryPointSymbolNotFound);
  EXPECT_EQ(function, nullptr);
}

TEST(Options, EnvironmentStartsAProcessOnTheDevice) {
  Options options;
  options.capability = 100;
  options.memory = 42;
  options.compute = true;
  const auto variables = environment(options, "/lib/of/ours", "/elsewhere");
  EXPECT_EQ(variables.at("LD_PRELOAD"), "/lib/of/ours/fake_cuda/liboctavo_fake_cuda.so");
  EXPECT_EQ(variables.at("LD_LIBRARY_PATH"), "/lib/of/ours/fake_cuda:/elsewhere");
  EXPECT_EQ(variables.at("OCTAVO_FAKE_CUDA_CAPABILITY"), "100");
  EXPECT_EQ(variables.at("OCTAVO_FAKE_CUDA_MEMORY"), "42");
  EXPECT_EQ(variables.at("OCTAVO_FAKE_CUDA_COMPUTE"), "1");
  EXPECT_EQ(variables.count("OCTAVO_FAKE_CUDA_RECORD"), 0u);
}

}  // namespace
}  // namespace octavo::fake_cuda
