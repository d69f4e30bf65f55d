#pragma once
// What a run says when it ends: how fast it was, how good, what went wrong, where its files are,
// and what to type next.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "launch/rank_info.h"

namespace octavo::train {

struct RunSummary {
  int64_t steps = 0;                       // of this start, which may be a resume
  double seconds = 0, step_seconds = 0;    // of it, and of its steps alone
  uint64_t tokens = 0;                     // of it
  double peak_bytes = 0;                   // of tensors, on the first rank
  std::string precision, fp8_backend;      // backend "": no FP8
  double fp8_share = 0;                    // of the FLOPs of GEMMs
  double last_loss = 0;                    // of training
  std::optional<double> best_val_loss;     // of the whole run
  std::optional<int64_t> best_step;        // nothing: before the resume
  size_t incidents = 0;                    // of this start: incidents.jsonl
  int64_t skipped_steps = 0;               // of the whole run
  int64_t resumes = 0;                     // of the whole run
  int64_t failures = 0;                    // after which a launcher started the ranks again
  std::vector<std::string> failure_kinds;  // "killed"
  int64_t flags = 0;                       // red flags that were raised
  std::vector<std::string> open_flags;     // of them, those that still hold
  fs::path folder, page;                   // of the run; page "": it could not be written
  fs::path checkpoints;                    // "": none were saved
  std::vector<std::string> next;           // commands
};

// "in 20 m 51 s: …" and the lines below it, indented by two.
std::string summary_text(const RunSummary& summary);

// How a run was stopped, and what continues it: this command again, or its launcher by itself.
std::string stop_words(const std::string& reason, int64_t step, bool launcher_continues);

// What can be typed in this folder after a run: of one that is done to use what it made, of one
// that was stopped to continue it; on several nodes also what to type on the others, and only for
// octavo launch with a fixed number of them (stop_words() says what else continues it).
std::vector<std::string> next_commands(const fs::path& run_folder, const fs::path& checkpoints,
                                       const launch::RankInfo& rank_info, bool stopped);

}  // namespace octavo::train
