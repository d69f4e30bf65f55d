// What the device did, kept for tests: counters, an ordered list, and every GEMM.
#pragma once
#include <cuda_runtime_api.h>

#include <functional>

#include "fake_cuda/fake_cuda.h"

namespace octavo::fake_cuda {

// An event to be kept. The name must live as long as the process.
Event make_event(Kind kind, const char* name, cudaStream_t stream = nullptr,
                 std::uint64_t bytes = 0);
void record(const Event& event);
void record_gemm(const Gemm& gemm);
void count_blocking_copy();
void count_pageable_copy();
void count_captured_node();
void count_out_of_memory();
void change_memory_in_use(std::int64_t bytes);
// For stubs: records the name as unexpected, once per call.
void record_unexpected(const char* name);

// Whatever is put on a stream comes through here. It happens at once (recorded, then `work` runs if
// there is any), or, when the stream is being captured, every time the graph is launched. False
// when the stream's capture forbids it.
using Work = std::function<void()>;
cudaError_t submit(cudaStream_t stream, const Event& event, const Work& work = nullptr);

}  // namespace octavo::fake_cuda
