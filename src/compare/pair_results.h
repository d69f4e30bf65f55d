#pragma once
// What one pair of runs says: gaps of loss, of validation, of speed, each with the interval that
// this pair alone allows.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compare/pairing.h"
#include "compare/statistics.h"

namespace octavo::compare {

// B against A. `a` and `b` are what the gap is of: means of losses, tokens per second.
struct Gap {
  double a = 0, b = 0;
  Interval interval;  // of the gap, in percent of a; for speed the factor
  bool open = false;  // there is a gap but no interval: too few values
};

// Of HellaSwag, by row.
struct TaskScores {
  double a = 0, b = 0;              // acc_norm, percent
  std::vector<double> differences;  // of each row: 1 when only B has it right, -1 only A
};

struct Pair {
  std::shared_ptr<const RunFolder> a, b;
  Pairing pairing;
  size_t tail_steps = 0;  // over which the training loss is judged
  int64_t tail_from = 0;  // the first of them
  std::optional<Gap> train, validation, speed;
  std::string no_train, no_validation, no_speed;  // why there is none
  size_t evaluations = 0;                         // in the last part
  double step_tokens_a = 0, step_tokens_b = 0;    // of the steps whose speed is judged
  bool speed_of_one_gpu = false;
  std::optional<TaskScores> task;
  std::string no_task;
};

// tail_share: the last part of the common steps.
Pair compare_pair(RunFolder a, RunFolder b, double tail_share);

inline constexpr size_t kLeastTailSteps = 50;   // for a verdict on the training loss
inline constexpr size_t kLeastEvaluations = 4;  // in the last part, for an interval of one pair

}  // namespace octavo::compare
