#pragma once
// A run's folder as `train` leaves it: metrics.jsonl, config.yaml, receipt.json, samples/. It may
// come from anywhere: sizes are bounded, bad lines are counted, missing parts are said.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "config/settings.h"
#include "foreign_logs/log.h"

namespace octavo::compare {

struct StepPoint {
  std::optional<double> loss;    // none: it was not finite
  double seconds = 0;            // 0: not said
  int64_t tokens = 0;            // trained on so far; 0: not said
  double step_tokens = 0;        // of this step alone; 0: not said
  double tokens_per_second = 0;  // where a log of another trainer says that itself; 0: not said

  // Tokens per second; none: the record does not say both.
  std::optional<double> speed() const {
    if (tokens_per_second > 0) return tokens_per_second;
    return seconds > 0 && step_tokens > 0 ? std::optional(step_tokens / seconds) : std::nullopt;
  }
};

struct RunFolder {
  fs::path folder;
  std::map<int64_t, StepPoint> steps;
  std::map<int64_t, std::optional<double>> evaluations;  // validation loss by step
  double peak_bytes = 0;                                 // 0: not said
  std::string precision;            // of the last step: BF16, FP8 rehearsal, …
  std::string device, status;       // of the receipt; "" when it has none
  std::optional<double> fp8_share;  // of the GEMMs' FLOPs
  int64_t fp8_fallbacks = 0, skipped_steps = 0, flags = 0;
  std::optional<config::Settings> settings;  // none: config.yaml is missing or cannot be read
  int64_t sample_step = -1;
  std::string sample;
  int64_t bad_lines = 0, repeated_steps = 0, lost_losses = 0;
  std::vector<std::string> remarks;  // what is missing or wrong here, for the report
  std::string format;                // of another trainer's log; "": a run of octavo
  bool same_batches = false;         // of such a log: somebody vouches for it
  bool rate_of_one_gpu = false;      // the steps' tokens per second are of one GPU
  int64_t ranks = 0;                 // of the receipt; 0: not known

  bool is_foreign() const { return !format.empty(); }
  std::string name() const;   // the folder's own name
  std::string label() const;  // "BF16", "FP8 rehearsal, delayed"
  bool on_cpu() const { return device.starts_with("cpu"); }
  // The steps that the settings ask for; 0 when they do not say.
  int64_t wanted_steps() const { return settings ? settings->max_steps : 0; }
};

// Fails when there is no metrics.jsonl with a step in it.
RunFolder read_run(const fs::path& folder);

// The log of another trainer as a run without settings, receipt and samples.
RunFolder read_foreign_run(const fs::path& path, const foreign_logs::Options& options,
                           bool same_batches);

// A folder with metrics.jsonl.
bool is_run_folder(const fs::path& path);

}  // namespace octavo::compare
