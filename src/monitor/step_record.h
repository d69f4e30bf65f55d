#pragma once
// What one training step says about itself. Every sink writes from this and nothing else.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fp8/channels.h"
#include "fp8/health.h"

namespace octavo::monitor {

// One quantized tensor in the statistics of a step.
struct Fp8Tensor {
  std::string layer, tensor;
  bool backward = false;
  fp8::TensorHealth health;
  std::string trouble;       // "" when healthy
  fp8::Channels channels{};  // of a down projection's input
};

// One GPU of this machine, as NVML sees it.
struct GpuUse {
  int index = 0;
  std::optional<double> busy_percent, watts, memory_bytes;  // absent: NVML does not tell
};

// How the tokens of a step were spread over the experts of one layer.
struct ExpertLoad {
  // Of all choices, what as many experts took as a token goes through: the busiest ones, and any
  // if all were equally busy. 1: every token goes through the same.
  double busiest_share = 0, even_share = 0;
  double largest = 0;                // rows of the busiest expert over the mean of all
  int64_t idle = 0;                  // experts without a row
  std::vector<double> token_shares;  // of each expert: the share of the tokens that went through it
};

// One source of a mixture of data sets, up to this step.
struct SourceUse {
  std::string name;
  uint64_t tokens = 0;
  double epochs = 0;                          // how often its samples were seen
  std::optional<double> loss = std::nullopt;  // of this step; absent when it had no tokens in it
};

struct StepRecord {
  int64_t step = 0, epoch = 0;
  double loss = 0, learning_rate = 0, grad_norm = 0;
  double seconds = 0, tokens_per_second = 0;
  uint64_t tokens = 0;           // trained on so far
  uint64_t position = 0;         // samples taken so far
  double data_wait_seconds = 0;  // of this step
  double penalty = 0;            // value of the penalty, unweighted; 0 when there is none
  // Of a model with experts: unweighted losses of its routers, and the load of each such layer.
  double balance_loss = 0, router_z = 0;
  std::vector<ExpertLoad> expert_loads;
  double memory_peak_bytes = 0;
  std::string precision;  // BF16, FP32, FP8, FP8 rehearsal
  bool skipped = false;   // the gradient was not finite and no update was applied
  int64_t fp8_layers = 0, fp8_fallbacks = 0;
  std::vector<Fp8Tensor> fp8_tensors;  // empty unless this step took statistics
  double memory_kept_bytes = 0;        // of tensors that live on after the step
  // Of each rank's own work in the step before, without waits for other ranks; empty with one rank.
  std::vector<double> rank_seconds;
  std::vector<uint64_t> samples;   // of this step on all ranks; empty unless record_samples
  int64_t sequence_length = 0;     // in tokens, with length_schedule; else 0
  std::vector<SourceUse> sources;  // of a mixture, all of them; else empty
  int64_t flags = 0;               // red flags that this run raised so far
  // Of checkpoints: how long the last one took that was saved, and how many failed since then.
  std::optional<double> save_seconds;  // absent before the first
  int64_t failed_saves = 0;
  // Of their uploads: how long the last one took, and how many attempts failed since then. Absent
  // without checkpoint_upload.
  std::optional<double> upload_seconds;
  int64_t failed_uploads = 0;
  // Added on the way to the sinks (async_sink.h).
  std::optional<double> goodput;  // share of the time since the start that steps made progress in
  std::optional<double> mfu;      // share of the devices' dense peak; none on a CPU
  std::vector<GpuUse> gpus;
};

struct EvalRecord {
  int64_t step = 0;
  double val_loss = 0;
  int64_t tokens = 0;
  bool best = false;
};

// A benchmark in the middle of a run: HellaSwag.
struct TaskRecord {
  int64_t step = 0, rows = 0;
  double acc = 0, acc_norm = 0;  // shares of the rows
};

// Something that a person should look at (red_flags.h).
struct Flag {
  int64_t step = 0;
  std::string name;          // "spike"
  std::string seen, remedy;  // one line each
  bool over = false;         // what was seen is no longer so, since this step
};

// Text that the model wrote.
struct SampleRecord {
  int64_t step = 0;
  std::string text;
};

}  // namespace octavo::monitor
