#pragma once
// FP8 of a whole model: which of its layers run in it and why the others do not, the scaling state,
// the statistics, and the guard that names a layer in trouble and may move it back to BF16.

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/settings.h"
#include "fp8/channels.h"
#include "nn/fp8_layer.h"
#include "nn/linear.h"

namespace octavo::nn {

struct Fp8ModelOptions {
  fp8::Options fp8;
  std::vector<std::string> skip;  // fp8_skip; empty: the recipe's default
  int64_t tokens = 0;             // of a micro-batch
  int64_t passes = 1;             // micro-batches of a step
  int64_t stats_freq = 0;         // steps between statistics; 0: never
  config::Fp8Guard guard = config::Fp8Guard::kLog;
  WeightCopies copies = WeightCopies::kKeep;
  uint64_t seed = 0;  // of stochastic rounding
  // Joins the statistics of all ranks; empty when there is one.
  std::function<void(const std::vector<fp8::TensorHealth*>&)> over_ranks;
};

struct Fp8LayerPlan {
  LinearPtr layer;
  std::string reason;  // why not FP8; "" when it is
};

// One tensor of one layer in the statistics of a step.
struct Fp8TensorReport {
  std::string layer, tensor;  // tensor: "input", "weight", "gradient"; " (columns)" for that copy
  fp8::Role role;
  fp8::TensorHealth health;
  std::string trouble;       // "" when healthy
  fp8::Channels channels{};  // of a down projection's input; on this rank
};

// A layer that the guard moved to BF16.
struct Fp8Fallback {
  std::string layer, reason;
  int64_t step = 0;
};

// What the guard remembers between two steps, and a checkpoint keeps.
struct Fp8GuardMemory {
  // Layers in trouble, and for how many statistics in a row.
  std::vector<std::pair<std::string, int64_t>> troubled;
  int64_t first_judged = 0;  // the step; before it delayed factors are no verdict yet
  bool dropped = false;      // the last step was
};

class Fp8Model {
 public:
  // Refused when no layer at all can run in FP8, or a pattern of `skip` names none.
  Fp8Model(const engine::Engine& engine, const LinearList& layers, const Fp8ModelOptions& options);
  ~Fp8Model();
  Fp8Model(const Fp8Model&) = delete;
  Fp8Model& operator=(const Fp8Model&) = delete;

  void begin_step(int64_t step);  // counted from 1
  // A micro-batch begins, `number` of all ranks': stochastic rounding draws by it.
  void begin_pass(uint64_t number) { shared_.pass = number; }
  bool measuring() const { return shared_.measuring; }  // this step takes statistics
  // What was made of the weights is made again when it is next needed.
  void forget_weights();
  // The largest magnitudes since the last update of delayed scales, FP32: a maximum over ranks is
  // due before finish_pass and finish_step. Undefined unless the recipe is delayed.
  at::Tensor amaxes();
  // Delayed scales are updated after every micro-batch (fp8_update): finish_pass() is due after all
  // but the last, whose update finish_step() makes.
  bool updates_each_pass() const;
  void finish_pass();
  // The passes of this step are done again in BF16: as if they had not been.
  void forget_magnitudes();
  // This step's statistics, flat, on the device; undefined when there are none.
  // Whoever copies numbers of the step to the host copies these along and hands them back, so that
  // statistics cost no wait of their own.
  at::Tensor stats() const;
  void take_stats(at::Tensor on_host) { stats_ = std::move(on_host); }
  // Of delayed scaling every step, likewise (Fp8Scaling::step_magnitudes). Returns their sum:
  // finite when all are. What is far beyond its format is named when the step is finished.
  at::Tensor step_magnitudes();
  double take_magnitudes(const at::Tensor& on_host);
  // The tensor whose largest magnitude of this step is infinite, under delayed scaling; "": none.
  std::string infinite_tensor() const { return shared_.scaling.infinite_slot(); }
  // Factors for the next step, statistics and the guard. Empty unless this step took statistics.
  std::vector<Fp8TensorReport> finish_step();
  // The step was not applied: its statistics are judged, its magnitudes forgotten.
  std::vector<Fp8TensorReport> drop_step();

  // The step is done again from its start: nothing of it is judged or remembered.
  void abandon_step();
  // From the next step on a step has so many micro-batches of so many tokens. The scaling state
  // stays, and how weights are kept: more copies would take memory, which is what was short.
  void resize_passes(int64_t tokens, int64_t passes);
  // The weights go back to a checkpoint: scaling state and the guard's memory begin again, for what
  // the checkpoint has of them. Layers that left FP8 stay in BF16.
  void start_anew();

  const fp8::Options& options() const { return options_.fp8; }
  const std::vector<Fp8LayerPlan>& plan() const { return plan_; }
  const std::vector<Fp8Fallback>& fallbacks() const { return fallbacks_; }
  int64_t layers_in_fp8() const;
  int64_t warnings() const { return warnings_; }

  // For checkpoints: tensors of the scaling state; load() returns the slots that start anew.
  std::vector<std::pair<std::string, at::Tensor>> state() const { return shared_.scaling.state(); }
  std::vector<std::pair<std::string, at::Tensor>> replicated_state() const {
    return shared_.scaling.replicated();
  }
  std::vector<std::string> load(const std::function<at::Tensor(const std::string&)>& find) {
    loaded_ = true;
    return shared_.scaling.load(find);
  }
  void fall_back(const Fp8Fallback& fallback);  // also when a checkpoint says so
  Fp8GuardMemory guard_memory() const;
  void remember(const Fp8GuardMemory& memory);

 private:
  std::vector<Fp8TensorReport> read_measured();
  std::vector<Fp8TensorReport> collect();
  void judge(const std::vector<Fp8TensorReport>& reports);
  void judge_fill();

  Fp8ModelOptions options_;
  Fp8Shared shared_;
  std::vector<Fp8LayerPlan> plan_;
  std::vector<int64_t> troubled_;  // statistics in a row that found a layer in trouble
  std::vector<Fp8Fallback> fallbacks_;
  int64_t step_ = 0, warnings_ = 0;
  int64_t passes_ = 0;        // of this step that were finished
  int64_t first_judged_ = 0;  // step
  bool loaded_ = false;       // the scaling state is a checkpoint's
  bool dropped_ = false;      // the step before was
  at::Tensor stats_;          // of this step, on the host
  std::vector<double> fill_;  // likewise, of each delayed scale's format
  struct Overfull {
    int64_t steps = 0;  // in a row
    bool far = false;
  };
  std::vector<Overfull> overfull_;  // by slot
};

}  // namespace octavo::nn
