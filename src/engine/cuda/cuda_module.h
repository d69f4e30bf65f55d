#pragma once
// What the GPU module (liboctavo_cuda.so) offers, by plain names that can be looked up after
// dlopen. The module links libtorch_cuda; nothing else of octavo does, so a machine without a GPU
// never loads it.

#include <cstdint>

#include "engine/graph.h"

extern "C" {

struct OctavoCudaDevice {
  char name[256];
  int32_t major, minor;  // compute capability
  uint64_t memory_bytes;
  int32_t multiprocessors;
};

// Number of devices the driver shows; fills at most `capacity` entries.
int32_t octavo_cuda_devices(OctavoCudaDevice* devices, int32_t capacity);

// A graph of that device, to be deleted by the caller.
octavo::engine::Graph* octavo_cuda_make_graph(int32_t device);

// A process group over NCCL, connected. `store` points to an intrusive_ptr<c10d::Store>, `parent`
// and `made` to an intrusive_ptr<c10d::Backend>: c10d's headers are not everybody's. With a parent
// (null: none) its ranks of one color split its communicator; all of its ranks make this call.
void octavo_cuda_make_nccl(const void* store, int32_t rank, int32_t size, int32_t device,
                           int64_t timeout_ms, const void* parent, int32_t color, void* made);
}
