#pragma once
// One training run, put together once from the settings. Its parts are structs of their own, and a
// function takes those that it works on: Run itself is for who moves several of them together.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/saver.h"
#include "checkpoint/uploader.h"
#include "config/settings.h"
#include "dist/world.h"
#include "optim/schedule.h"
#include "train/dataset.h"
#include "train/guards/guards.h"
#include "train/progress.h"
#include "train/state/checkpoint_clock.h"
#include "train/state/run_folders.h"
#include "train/trained_model.h"

namespace octavo::train {

// What became of batch_size (train/batching/auto_batch.h).
struct Batching {
  int64_t found = 0;                       // by auto_batch_size; 0: not searched for
  int64_t trials = 0;                      // passes that the search took
  int64_t halvings = 0;                    // because memory ran out in the middle of the run
  int64_t eval_samples = 0;                // of an evaluation, whatever batch_size becomes
  double limit_bytes = 0, peak_bytes = 0;  // of the search, and of the pass that fitted
  bool past_passes = false;                // the step was applied or skipped: never done again
  std::string asked;                       // what the settings said before (asked_batches)
};

// Where a resumed run came from.
struct Resumed {
  std::string from;  // a checkpoint's folder; "": a new run
  int64_t step = 0;
  std::vector<std::string> passed_over;     // newer checkpoints that were damaged
  std::optional<optim::Schedule> schedule;  // of the run that saved it; older ones may not say
  int64_t ranks = 1;                        // that it had
};

// Seconds of a step without waits for other ranks.
struct StepTimes {
  double own = 0;                // of the last step, on this rank
  std::vector<double> of_ranks;  // of the step before, on every rank; empty when not told
};

struct Run {
  config::Settings settings;
  RunFolders claim;  // of its folders; run_id "": it has none, nothing of it is kept
  dist::World world;
  TrainedModel trained;  // what is trained
  DataState data;        // on what, and how far it was read
  Guards guards;         // what watches over it
  StepTimes times;       // what is reported of its steps
  optim::Schedule schedule;
  Progress progress;
  Batching batching;
  Resumed resumed;
  // On the first rank, with checkpoint_upload. Before the saver, which tells it of its saves.
  std::unique_ptr<checkpoint::Uploader> uploader;
  std::unique_ptr<checkpoint::Saver> saver;   // from the first save on
  std::optional<CheckpointClock> save_clock;  // from the first step on

  int64_t tokens_per_step() const;  // over all micro-batches and ranks
};

// Builds everything; weights are initialised (or loaded from init_from), and when settings.resume
// asks for it the run continues from a checkpoint (run.resumed). `writes`: the run is to have
// folders, which it claims before anything else (train/state/run_folders.h). kLater: the caller
// loads a checkpoint's weights.
std::unique_ptr<Run> assemble(config::Settings settings, bool writes = false,
                              Weights weights = Weights::kOfSettings);

}  // namespace octavo::train
