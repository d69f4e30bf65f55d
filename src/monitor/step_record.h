#pragma once
// What one training step says about itself. Every sink writes from this and nothing else.

#include <cstdint>
#include <optional>
#include <string>

namespace octavo::monitor {

struct StepRecord {
  int64_t step = 0, epoch = 0;
  double loss = 0, learning_rate = 0, grad_norm = 0;
  double seconds = 0, tokens_per_second = 0;
  uint64_t tokens = 0;           // trained on so far
  double data_wait_seconds = 0;  // of this step
  double penalty = 0;            // value of the penalty, unweighted; 0 when there is none
  double memory_peak_bytes = 0;
  std::string precision;  // BF16, FP32, FP8, FP8 rehearsal
};

struct EvalRecord {
  int64_t step = 0;
  double val_loss = 0;
  int64_t tokens = 0;
  bool best = false;
};

}  // namespace octavo::monitor
