#pragma once
// The device that a run computes on, and what FP8 means there.

#include <c10/util/Exception.h>

#include <optional>

#include "config/settings.h"
#include "engine/op_table.h"
#include "fp8/execution.h"

namespace octavo::train {

// Threads, allocator and GPU libraries of this process: before the first tensor.
void prepare_process(const config::Settings& settings);

// As the key `deterministic` says, of all models that are made from now on: flash attention's
// backward and scattered sums in a fixed order, by which the same seed gives the same numbers on a
// GPU too. BF16 GEMMs are summed in FP32 to the end in any case. Nothing on a CPU.
void prepare_gpu_kernels(const config::Settings& settings);

// What to change when the device's memory is full, in the order in which it costs least. Fails.
[[noreturn]] void fail_out_of_memory(const c10::OutOfMemoryError& error);

// By the key `device`: the first GPU that this process sees, or the CPU. Fails when a GPU is asked
// for and there is none.
at::Device device_of(const config::Settings& settings);

// What FP8 means on the device; nothing when it is not asked for. Warnings are not yet logged.
std::optional<fp8::Decision> decide_fp8(const config::Settings& settings);

engine::Target target_of(const config::Settings& settings);
// For work on files, which is the same on every machine.
engine::Target cpu_target_of(const config::Settings& settings);

}  // namespace octavo::train
