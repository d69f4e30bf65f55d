#include <dlfcn.h>
#include <nlohmann/json.hpp>

#include "device.h"

extern "C" char* octavo_fake_cuda_json(const char* part);

namespace octavo::fake_cuda {
namespace {

nlohmann::json json_of(const char* part) {
  char* const text = octavo_fake_cuda_json(part);
  const nlohmann::json parsed = nlohmann::json::parse(text);
  std::free(text);
  return parsed;
}

TEST(Record, LaunchesAreKeptInOrder) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  api()->reset();
  EXPECT_EQ(launch_some_kernel(128, stream), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const std::vector<Event> seen = events();
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[0].kind, Kind::kLaunch);
  EXPECT_EQ(seen[0].stream, reinterpret_cast<std::uint64_t>(stream));
  EXPECT_EQ(seen[1].kind, Kind::kStreamSync);
  EXPECT_EQ(seen[2].kind, Kind::kDeviceSync);
  EXPECT_EQ(counters().host_waits(), 2u);
  EXPECT_EQ(json_of("events")[0]["kind"], "launches");
  EXPECT_EQ(json_of("counters")["launches"], 1);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(launch_some_kernel(128, stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
}

TEST(Record, LaunchesThatARealDeviceRefuses) {
  api()->reset();
  EXPECT_EQ(launch_some_kernel(1025), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch_some_kernel(0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch_some_kernel(128, nullptr, 65536), cudaErrorInvalidValue);
  const auto* const kernel = reinterpret_cast<const void*>(&some_kernel);
  EXPECT_EQ(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 300000),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536),
            cudaSuccess);
  EXPECT_EQ(launch_some_kernel(128, nullptr, 65536), cudaSuccess);
  EXPECT_EQ(counters().of(Kind::kLaunch), 1u);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

TEST(Record, AStreamOfAnotherDeviceIsRefused) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(launch_some_kernel(32, stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST(Record, WhatHasNoMeaningIsNamed) {
  api()->reset();
  auto* const stub =
      reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "cudaGraphKernelNodeGetParams"));
  ASSERT_NE(stub, nullptr);
  EXPECT_EQ(stub(), 0);
  EXPECT_EQ(stub(), 0);
  EXPECT_EQ(json_of("unexpected"), (nlohmann::json{{"cudaGraphKernelNodeGetParams", 2}}));
}

}  // namespace
}  // namespace octavo::fake_cuda
