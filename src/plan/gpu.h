#pragma once
// What GPUs can do on paper, and which constants of the calibration are theirs.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace octavo::plan {

struct Gpu {
  std::string_view name;    // what users type: h100, rtx4090
  std::string_view title;   // as vendors write it
  std::string_view family;  // GPUs of one family share the efficiencies in calibration.cpp
  int capability;           // 90: compute capability 9.0
  double bf16_tflops;       // dense, FP32 accumulation
  double fp8_tflops;        // 0: none
  double memory_gib;        // all that CUDA reports (2^30 bytes): less than vendors print
  double memory_tb_s;       // bandwidth
  double link_gb_s;         // to one neighbour in the same node, one way: NVLink or PCIe
  double network_gb_s;      // out of the node, per GPU, one way
  int gpus_per_node;        // that share the link above
  int multiprocessors;
  double fp4_tflops = 0;  // NVFP4, dense; 0: none that training uses
};

std::span<const Gpu> gpus();
double total_bytes(const Gpu& gpu);  // as CUDA reports them
// What a run can allocate: all but the context, the kernels of the libraries and NCCL's buffers.
double usable_bytes(const Gpu& gpu);
// By name, title, or what drivers and people call it ("NVIDIA H100 80GB HBM3", "H100", "h100-sxm",
// "RTX 4090"); null: not known.
const Gpu* find_gpu(std::string_view name);
const Gpu* gpu_of_device(std::string_view device_name);  // without our own names (device_name.cpp)
const Gpu& known_gpu(std::string_view name);             // or an error that lists the known ones
// A device of the user's own, described in a YAML file: see gpu_file.cpp.
const Gpu& gpu_of_file(const std::string& path);
// By a name as above, or the path of such a file (.yaml, .yml).
const Gpu& wanted_gpu(std::string_view name);

}  // namespace octavo::plan
