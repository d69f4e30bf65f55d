#pragma once
// The allocator of CPU tensors. Training allocates and frees the same large blocks every step; the
// C library gives them back to the kernel each time and a third of a step goes into page faults.
// This one keeps blocks of 256 KiB and more by size class, in huge pages, and counts what is in
// use.

#include <c10/core/Device.h>

#include <cstddef>

namespace octavo::engine {

struct MemoryUse {
  size_t in_use = 0;    // bytes of live tensors (rounded to size classes)
  size_t peak = 0;      // largest in_use so far
  size_t reserved = 0;  // in_use plus what is kept for reuse
};

// Call once, before the first tensor is made.
void install_cpu_allocator();
MemoryUse cpu_memory();
void reset_cpu_peak();
// Gives kept blocks back to the system.
void trim_cpu_memory();
// Tensors that would take more than this throw c10::OutOfMemoryError, as a GPU's do, instead of
// waiting for the kernel to end the process. 0: no limit.
void limit_cpu_memory(size_t bytes);
// What this machine can still give, and the control group of this process allows.
size_t available_cpu_memory();

// Of any device: on GPUs libtorch's caching allocator counts.
MemoryUse memory_of(at::Device device);
// Gives what is kept back to the device, or the system.
void trim_memory(at::Device device);
void reset_peak(at::Device device);
// What tensors of this process can take in all: the limit, or what it has and what is free.
size_t memory_limit(at::Device device);

}  // namespace octavo::engine
