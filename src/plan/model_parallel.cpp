#include "plan/model_parallel.h"

#include <algorithm>
#include <string>

#include "plan/collectives.h"

namespace octavo::plan {

// With sequence parallelism, activations are gathered before attention and before the MLP and
// scattered after each, in both passes, and gathered once more for the gradients of the two first
// weights: ten times. Computing the forward pass again moves four of them again.
double tensor_bytes(const Workload& work, double tokens, double again) {
  const double tensor = static_cast<double>(work.split.tensor);
  const double each = tokens * static_cast<double>(work.shape.hidden) * 2 * (tensor - 1) / tensor;
  return each * (10 + 4 * again);
}

// Keys and values of the others' tokens come by in the forward and in the backward pass, where
// their gradients travel with them.
double context_bytes(const Workload& work, double tokens, double again) {
  const Shape& s = work.shape;
  const double width = 2 * static_cast<double>(s.kv_heads * s.head_dim);
  const double each = tokens * width * 2 / static_cast<double>(work.split.tensor);
  return each * static_cast<double>(work.split.context - 1) * (3 + again);
}

// A step of m micro-batches on p stages takes m + (p - 1) / parts times the slowest stage's time
// (1F1B, interleaved when a stage has several parts). The head is the last stage's. Where layers
// cannot be shared out evenly, the ends of the pipeline have one layer less.
double pipeline_wait(const Workload& work, double layers, double head) {
  const int64_t stages = work.split.pipeline;
  if (stages == 1) return 0;
  const double steps = static_cast<double>(work.accumulation);
  const int64_t most = (work.shape.layers + stages - 1) / stages;
  const int64_t last = work.shape.layers % stages == 0 ? most : most - 1;
  const double all = static_cast<double>(stages) / steps;  // of one micro-batch on all stages
  const double layer = layers * all / static_cast<double>(work.shape.layers);
  const double slowest =
      std::max(static_cast<double>(most) * layer, static_cast<double>(last) * layer + head * all);
  const double filling =
      static_cast<double>(stages - 1) / static_cast<double>(work.split.parts) * slowest;
  return steps * slowest - (layers + head) + filling;
}

double model_parallel_time(const Workload& work, const Calibration& calibration,
                           const StepTime& time, double tokens, double again) {
  const ModelParallel& split = work.split;
  if (split.gpus() == 1) return 0;
  const Gpu& gpu = *work.gpu;
  const Links links = links_of(gpu, calibration);
  // Tensor parallelism has the node's links first; context parallelism beyond a node has adapters.
  const bool far = split.tensor * split.context > gpu.gpus_per_node;
  const double wire = tensor_bytes(work, tokens, again) / links.inside +
                      context_bytes(work, tokens, again) / (far ? links.adapter : links.inside);
  const double times = static_cast<double>(work.accumulation * work.shape.layers) /
                       static_cast<double>(split.pipeline);
  const std::string stack(work.stack);
  const double overlap = calibration.of(stack + ".overlap");
  const double contention = calibration.of(stack + ".contention");
  const double layers =
      time.gemms + time.adapters + time.attention + time.elementwise + time.quantize;
  return times * wire * (1 - overlap + overlap * contention) +
         pipeline_wait(work, layers, time.head);
}

}  // namespace octavo::plan
