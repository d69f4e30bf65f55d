// The device's options and properties, and what every file of this module needs of it.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace octavo::fake_cuda {

struct DeviceOptions {
  int capability;
  std::size_t memory;
  int devices;
  bool compute;
  int driver;
  std::size_t events;
  std::string record;
};

// Read once, on the first call; a value that is not understood ends the process with a message.
const DeviceOptions& options();

// The properties of the chosen compute capability, after those of a real card of that kind.
struct DeviceModel {
  int capability;
  int multiprocessors;
  int shared_memory_block;  // most that one block can ask for
  int shared_memory_multiprocessor;
  int threads_multiprocessor;
  int blocks_multiprocessor;
  int l2_bytes;
  int memory_bus_bits;
};
const DeviceModel& model();
std::string device_name();

int current_device();
void set_current_device(int device);
// Keeps the error for cudaGetLastError of this thread and gives it back.
cudaError_t remember(cudaError_t error);
cudaError_t last_error_of_thread(bool clear);
// Success, or why the runtime finds no device: there is none, or the driver is older than the
// runtime.
cudaError_t availability();
bool is_device(int device);
// A device counts as in use from the first call that needs its context.
void use_device(int device);
bool in_use(int device);

// Value of an attribute; CUdevice_attribute has the same numbers.
int device_attribute(int attribute);
int blocks_per_multiprocessor(int threads, std::size_t dynamic_shared_memory);

// The value of an environment variable OCTAVO_FAKE_CUDA_*, or of the name that it had before,
// OCTAVO_ABSENT_*, which is read for one more version; null when neither is set.
const char* variable(const char* name);

// One line on stderr, marked as the fake CUDA device's.
void say(const std::string& text);

}  // namespace octavo::fake_cuda
