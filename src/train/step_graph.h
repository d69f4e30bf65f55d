#pragma once
// The forward and backward pass of a micro-batch as a CUDA graph (key cuda_graph): captured once,
// then launched by one call, so that the host's part of hundreds of launches is gone.
//
// The first micro-batch of a step writes gradients and FP8 weights, later ones add to and read
// them: two graphs that share memory. A graph reads its batch, the weights, the gradients and the
// delayed factors where they were when it was captured. All that keeps its place by itself but
// gradients in BF16, whose memory is given back after every update, and FP8 weights, which a step
// makes anew: the first graph makes both, in memory of its own. FP8 copies of frozen weights are
// made once, and held here. Values of the host are part of a graph: what changes them
// from step to step is refused, and what changes them now and then leads to another capture.
//
// Several ranks: a pass with collectives in it is not captured. With whole weights and gradients on
// every rank (ddp) that is the last of a step alone, which runs eagerly after the others' graphs.

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "config/settings.h"
#include "engine/fp8_linear.h"
#include "engine/graph.h"
#include "models/device_batch.h"
#include "nn/linear.h"

namespace octavo::train {

struct TrainedModel;

// The sums of one micro-batch: loss and logsumexp^2 over tokens, and the penalty's value.
struct MicroBatch {
  at::Tensor sums;
  at::Tensor penalty;
  at::Tensor routing;  // Routing::end_pass()
  at::Tensor sources;  // sums_by_source() (train/source_loss.h)
};

class StepGraph {
 public:
  using Pass = std::function<MicroBatch(const models::DeviceBatch&)>;
  struct Place {
    bool accumulates = false;  // there are several
    bool is_last = true;
  };

  // Fails on a CPU. What cannot be captured in this run is said, and every step runs eagerly.
  StepGraph(const TrainedModel& trained, const config::Settings& settings, int ranks,
            const data::TokenData& data);

  // Runs a micro-batch, by a graph or by `pass` itself. `share` is of one token in the step's loss;
  // `place`: of this micro-batch among those of its step.
  MicroBatch run(TrainedModel& trained, const data::Batch& batch, double share, Place place,
                 const Pass& pass);
  // Something may have moved that a graph reads: captures again after one eager step.
  void forget();

  Json receipt() const;

 private:
  struct Captured {
    std::unique_ptr<engine::Graph> graph;
    MicroBatch result;
    std::vector<std::array<nn::Linear::GemmCounts, 3>> gemm_counts;  // GEMMs of each linear layer
  };
  void begin_step(const TrainedModel& trained, double share, bool accumulates);
  bool capture(TrainedModel& trained, bool accumulates, Captured& into, const Pass& pass);
  void refuse(const std::string& reason);
  void log_once(bool& said, const std::string& what);

  const bool last_is_captured_;  // not so where it has collectives
  Captured first_, later_;
  models::DeviceBatch input_;
  std::vector<int32_t> starts_;  // of its sequences
  std::vector<engine::Fp8Matrix> frozen_;
  std::vector<at::Tensor> gradients_;  // of the trained parameters, where the graphs write them;
                                       // undefined: they do not
  double share_ = 0;                   // that the graphs were captured with
  size_t fallbacks_ = 0;               // likewise
  std::string refused_;                // why there is no graph in this run
  int64_t warm_up_;                    // eager steps before a capture
  bool replays_ = false;               // this step does
  int64_t replayed_ = 0, eager_ = 0, captures_ = 0;
  bool said_measuring_ = false, said_share_ = false, said_only_pass_ = false;
};

}  // namespace octavo::train
