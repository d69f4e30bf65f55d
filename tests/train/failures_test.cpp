#include "train/guards/failures.h"

#include <gtest/gtest.h>

#include "expect_failure.h"

namespace octavo::train {
namespace {

const c10::SourceLocation kHere{"a function", "a file", 1};

TEST(TorchFailures, Classes) {
  EXPECT_EQ(failure_of_torch(c10::OutOfMemoryError(kHere, "full")), Failure::kDeviceMemory);
  for (const int code : {214, 700, 719, 710, 46})  // ECC, address, launch, assert, busy
    EXPECT_EQ(failure_of_torch(c10::AcceleratorError(kHere, code, "CUDA error")),
              Failure::kDeviceFault)
        << code;
  EXPECT_EQ(failure_of_torch(c10::AcceleratorError(kHere, 2, "full")), Failure::kDeviceMemory);
  EXPECT_EQ(failure_of_torch(c10::AcceleratorError(kHere, 209, "no kernel image")),
            Failure::kUnknown);
  EXPECT_EQ(failure_of_torch(c10::DistBackendError(kHere, "NCCL")), Failure::kNetwork);
  EXPECT_EQ(failure_of_torch(c10::DistNetworkError(kHere, "reset")), Failure::kNetwork);
  EXPECT_EQ(failure_of_torch(c10::DistStoreError(kHere, "gone")), Failure::kNetwork);
  EXPECT_EQ(failure_of_torch(c10::IndexError(kHere, "shape")), Failure::kUnknown);
  EXPECT_EQ(failure_of_torch(c10::NotImplementedError(kHere, "no")), Failure::kUnknown);
}

// As ATen writes them.
TEST(TorchFailures, Texts) {
  const auto of = [](const char* text) { return failure_of_torch(c10::Error(kHere, text)); };
  EXPECT_EQ(of("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(…)`"),
            Failure::kDeviceFault);
  EXPECT_EQ(of("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
            Failure::kDeviceMemory);
  EXPECT_EQ(of("CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasGemmEx(…)`"),
            Failure::kUnknown);
  EXPECT_EQ(of("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"), Failure::kDeviceFault);
  EXPECT_EQ(of("[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't "
               "allocate memory: you tried to allocate 4096 bytes."),
            Failure::kHostMemory);
  EXPECT_EQ(of("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"), Failure::kUnknown);
}

TEST(TorchFailures, ABugStaysOne) {
  EXPECT_NO_THROW(fail_if_environment(c10::Error(kHere, "shapes")));
  expect_failure(ExitCode::kEnvironment, "look for Xid in dmesg", [] {
    fail_if_environment(c10::AcceleratorError(kHere, 214, "uncorrectable ECC error"));
  });
}

}  // namespace
}  // namespace octavo::train
