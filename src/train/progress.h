#pragma once
// How far a run has come.

#include <cstdint>
#include <optional>

#include "data/token_data.h"

namespace octavo::train {

struct Progress {
  int64_t step = 0;          // steps done
  uint64_t tokens = 0;       // trained on so far
  data::Position position;   // in the training data, after the last step
  double best_val_loss = 0;  // the lowest of all evaluations, saved or not
  bool has_best = false;
  // Of the checkpoint that best_model names, and of a save on its way that is to move it there:
  // best_model_loss() in state/persist.h knows what became of that.
  std::optional<double> best_model_loss, best_save_loss;
  int64_t permanent_due = 0;     // the last step that permanent_checkpoint_freq asked for
  int64_t skipped_steps = 0;     // that were not applied
  int64_t skipped_in_a_row = 0;  // up to now
  int64_t bad_step_skips = 0;    // of them, by bad_steps: they count against its budget
  int64_t rollbacks = 0;
  bool stop_agreed = false;  // some rank was asked to stop, and all know
  bool save_agreed = false;  // the first rank's clock says that a checkpoint is due
  // The run was asked to stop in the evaluation of this step: the resume makes up for it.
  bool evaluation_left_out = false;
  bool saves_fail = false;  // on some rank max_failed_saves in a row have failed
};

}  // namespace octavo::train
