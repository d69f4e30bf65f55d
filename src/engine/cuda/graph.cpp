// engine/graph.h by libtorch's CUDA graphs.

#include <ATen/cuda/CUDAGraph.h>

#include "engine/cuda/cuda_module.h"

namespace {

using octavo::engine::Graph;

// One for all captures: libraries keep a workspace for each stream that they have seen.
at::cuda::CUDAStream capture_stream(c10::DeviceIndex device) {
  static const at::cuda::CUDAStream stream = at::cuda::getStreamFromPool(false, device);
  return stream;
}

class CudaGraph final : public Graph {
 public:
  explicit CudaGraph(c10::DeviceIndex device) : device_(device) {}

  void capture(const std::function<void()>& work, const Graph* beside) override {
    const at::cuda::CUDAStreamGuard guard(capture_stream(device_));
    const auto* other = dynamic_cast<const CudaGraph*>(beside);
    if (other != nullptr)
      graph_.capture_begin(other->pool_);
    else
      graph_.capture_begin();
    try {
      work();
    } catch (...) {
      abandon();
      throw;
    }
    graph_.capture_end();
    pool_ = graph_.pool();
  }

  void replay() override { graph_.replay(); }

 private:
  void abandon() {
    try {
      graph_.capture_end();
    } catch (const c10::Error&) {  // the capture is spoilt, which the caller knows already
    }
    graph_.reset();
  }

  c10::DeviceIndex device_;
  at::cuda::CUDAGraph graph_;
  at::cuda::MempoolId_t pool_{0, 0};
};

}  // namespace

extern "C" __attribute__((visibility("default"))) Graph* octavo_cuda_make_graph(int32_t device) {
  return new CudaGraph(static_cast<c10::DeviceIndex>(device));
}
