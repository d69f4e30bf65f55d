#pragma once
// The flags of `octavo compare` that are no keys: they are about logs of other trainers, which no
// configuration file describes.

#include <string>
#include <vector>

#include "cli/verbs.h"
#include "foreign_logs/log.h"

namespace octavo::cli {

struct CompareFlags {
  std::vector<std::string> against;  // the second side, a run for each of the first
  foreign_logs::Options logs;
  bool same_batches = false;
  bool about_logs = false;              // one of these was given
  std::vector<std::string> other_args;  // for config::parse
};

// --against takes every word up to the next flag.
CompareFlags take_compare_flags(Args args);

// The lines of --help.
inline constexpr std::string_view kCompareFlagsHelp =
    "Runs are folders of octavo or logs of other trainers (TensorBoard, W&B, CSV, JSONL,\n"
    "trainer_state.json, text logs). For those:\n"
    "  --against B1 B2 …      the second side, one for each run before it: a seed each\n"
    "  --loss_name NAME       which value is the training loss, when no usual name is there\n"
    "  --val_loss_name NAME   the same for the validation loss\n"
    "  --same_batches         step n of both runs was trained on the same batch\n"
    "  --step_tokens N        tokens of a step, where the log has times and no tokens\n";

}  // namespace octavo::cli
