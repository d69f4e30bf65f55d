#pragma once
// A run to and from a checkpoint.

#include <optional>
#include <string>

#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "train/run.h"
#include "train/state/run_folders.h"

namespace octavo::train {

// Everything needed to continue bit for bit: masters, moments, step, data position. Every rank
// writes what it has; all of them call these together. Into checkpoint_dir/<run_name>.
//
// In the background, while training continues; a failure is a warning, and counted. The weights
// must not change before run.saver->before_update(). Weights that are not finite are not saved:
// that is a failure. `may_be_best`: best_model names the checkpoint when its loss is below that of
// the one which it names once the save before has ended.
void start_save(Run& run, const std::string& run_name, bool may_be_best, const double* val_loss);
// In the foreground, after one in progress. A failure is an error; of weights that are not finite,
// one of a guard.
fs::path save(Run& run, const std::string& run_name, bool may_be_best, const double* val_loss);
// Whether some trained weight is not finite, on any rank: then a line names it, and the save that
// would be due counts as one that failed.
bool refuses_save(Run& run, const std::string& run_name);
// Checkpoints beyond keep_checkpoints that stayed because they were being uploaded.
void remove_old_checkpoints(const Run& run);
// Before the first save: an error when the disk has no room for it.
void check_room(const Run& run);
// What an evaluation must be below to move best_model: the loss of the checkpoint that it names, or
// is about to; nothing: it names none. All ranks together, as the first one finds it.
std::optional<double> best_model_loss(Run& run);
// The same from a folder's best_model. `otherwise`: when it cannot be read now, which is said.
std::optional<double> best_loss_on_disk(dist::World& world, const fs::path& folder,
                                        std::optional<double> otherwise);

// Until the save in progress has ended. Whether the last one succeeded on all ranks.
bool finish_saves(Run& run);
bool save_in_progress(Run& run);  // on any rank; all ask together

// In the step that is being made: by checkpoint_minutes, of this rank's clock; or, where nothing
// else asks for saves, since a permanent checkpoint could not be saved.
bool save_is_due_by_time(const Run& run);
std::string saves_by_time(const Run& run);  // how often that is now, and why
// Have max_failed_saves saves in a row failed on this rank?
bool saves_fail(const Run& run);
// A run that cannot save is ended by a guard: what it does is lost with the next failure.
[[noreturn]] void fail_unsaved(const Run& run);
// All ranks together, once they were asked to stop: is there still time to save? A notice is often
// 30 s; what a save in progress has taken of it is gone.
bool has_time_to_save(Run& run, double seconds_since_stop);

// Weights, moments, FP8 state and recent losses of a checkpoint (latest, best, a run, a path): the
// same on all ranks, each with the rows that it has. Progress stays as it is.
struct Restored {
  std::string path;
  int64_t step = 0;
  uint64_t samples = 0;  // the data's position then
};
Restored restore(Run& run, const std::string& which);

// Puts the run into the state of the checkpoint that settings.resume names; run.resumed
// says which it was.
void resume(Run& run);

// The weights alone, frozen, to generate, evaluate and export: of a checkpoint (latest, best, a
// run, a path), of a Hugging Face folder or name, or of adapters, merged into the model they belong
// to.
struct Loaded {
  std::string source;  // of the weights: a checkpoint's path, a folder or a name
  std::unique_ptr<engine::Engine> engine;
  std::unique_ptr<models::Model> model;
  std::string tokenizer;  // name to load it by
  std::string
      tokenizer_fingerprint;  // "" for a Hugging Face folder: whatever lies beside the weights
};
Loaded load_model(const config::Settings& settings);

}  // namespace octavo::train
