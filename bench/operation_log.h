#pragma once
// Every operation of a step on the fake CUDA device with the tensors that it reads and writes: of
// libtorch's dispatcher, of Transformer Engine and of our own kernels (engine/traffic.h). An
// operation is a call during which the device was asked for a kernel, a GEMM, a copy or a fill that
// no call inside it asked for.

#include <ATen/core/function_schema.h>
#include <ATen/record_function.h>

#include <mutex>
#include <string>

#include "base/json.h"
#include "engine/traffic.h"

namespace octavo::bench {

// Records while it lives; one at a time.
class OperationLog final : public engine::TrafficListener {
 public:
  OperationLog();
  ~OperationLog() override;
  OperationLog(const OperationLog&) = delete;
  OperationLog& operator=(const OperationLog&) = delete;

  void on_operation(const char* name, int64_t read, int64_t written) override;

  // {"operations": [{"name", "work", "inside": [names], "tensors": [{"argument", "role": "r", "w"
  // or "rw", "sizes", "strides", "item"}]}], "unattributed": what the device was asked for besides}
  Json result();

 private:
  struct Frame;
  static std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function);
  static void on_end(const at::RecordFunction& function, at::ObserverContext* context);
  void add(Json operation, uint64_t work);

  std::mutex mutex_;
  Json operations_ = Json::array();
  uint64_t first_ = 0, last_ = 0, attributed_ = 0;
  at::CallbackHandle handle_ = 0;
};

}  // namespace octavo::bench
