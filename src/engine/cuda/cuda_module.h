#pragma once
// What the GPU module (liboctavo_cuda.so) offers, as plain C so that it can be looked up after
// dlopen. The module links libtorch_cuda; nothing else of octavo does, so a machine without a GPU
// never loads it.

#include <cstdint>

extern "C" {

struct OctavoCudaDevice {
  char name[256];
  int32_t major, minor;  // compute capability
  uint64_t memory_bytes;
  int32_t multiprocessors;
};

// Number of devices the driver shows; fills at most `capacity` entries.
int32_t octavo_cuda_devices(OctavoCudaDevice* devices, int32_t capacity);
}
