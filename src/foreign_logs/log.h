#pragma once
// The log of another trainer: the losses, evaluations, times and tokens of its steps. What kind of
// log it is, its bytes say, not its name. A log may come from anywhere: sizes are bounded, and what
// is left out or taken twice is counted and said.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace octavo::foreign_logs {

struct Options {
  std::string loss_name, val_loss_name;  // "": the names that trainers use (metric_names.h)
  int64_t step_tokens = 0;               // of one step, where the log does not say; 0: not known
};

struct LogStep {
  std::optional<double> loss;    // none: it was not finite
  double seconds = 0;            // of the step; 0: not said
  double tokens = 0;             // trained on so far; 0: not said
  double tokens_per_second = 0;  // as the trainer counts them; 0: not said
};

struct Log {
  fs::path path;                         // as it was given
  std::string format;                    // "Megatron's text log"
  std::string loss_name, val_loss_name;  // what the values were called; "": there were none
  std::map<int64_t, LogStep> steps;      // that have a training loss
  std::map<int64_t, std::optional<double>> evaluations;  // validation loss by step
  bool rate_of_one_gpu = false;                          // tokens_per_second is of one GPU
  double peak_bytes = 0;                                 // 0: not said
  int64_t bad_lines = 0;                                 // rows or records that could not be read
  int64_t repeated_steps = 0;        // with several losses, of which the last counts
  int64_t lost_losses = 0;           // not finite
  int64_t skipped_steps = 0;         // by the trainer, where it says so
  std::vector<std::string> remarks;  // all of that for the reader, and what else is odd
};

// A file, a folder with the log of one run in it, or FILE.csv#RUN for one of several runs that W&B
// exported together. Fails when it is no log that is known, or when it has no training loss.
Log read_log(const fs::path& path, const Options& options = {});

// "TensorBoard event files, W&B offline files, …"
std::string known_formats();

}  // namespace octavo::foreign_logs
