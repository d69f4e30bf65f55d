#pragma once
// What the GPUs of this machine are doing, from NVML where there is one.

#include <vector>

#include "monitor/step_record.h"

namespace octavo::monitor {

class GpuReader {
 public:
  explicit GpuReader(const char* library = "libnvidia-ml.so.1");
  ~GpuReader();
  GpuReader(const GpuReader&) = delete;
  GpuReader& operator=(const GpuReader&) = delete;
  std::vector<GpuUse> read() const;  // empty without NVML

 private:
  void* library_ = nullptr;
  std::vector<void*> devices_;
};

}  // namespace octavo::monitor
