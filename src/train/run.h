#pragma once
// Everything one training run is made of, put together once from the settings.

#include <memory>
#include <optional>
#include <string>

#include "checkpoint/saver.h"
#include "config/settings.h"
#include "data/token_data.h"
#include "dist/replicas.h"
#include "dist/sharding.h"
#include "dist/world.h"
#include "engine/engine.h"
#include "fp8/execution.h"
#include "models/model.h"
#include "monitor/loss_watch.h"
#include "nn/fp8_model.h"
#include "nn/lora.h"
#include "nn/probes.h"
#include "optim/adamw.h"
#include "optim/schedule.h"
#include "tokenizer/tokenizer.h"
#include "train/guards/incident.h"
#include "train/model_factory.h"
#include "train/state/base_model.h"
#include "train/state/run_folders.h"
#include "train/step_graph.h"

namespace octavo::train {

struct Progress {
  int64_t step = 0;         // steps done
  uint64_t tokens = 0;      // trained on so far
  data::Position position;  // in the training data, after the last step
  double best_val_loss = 0;
  bool has_best = false;
  int64_t skipped_steps = 0;     // that were not applied
  int64_t skipped_in_a_row = 0;  // up to now
  int64_t bad_step_skips = 0;    // of them, by bad_steps: they count against its budget
  int64_t rollbacks = 0;
  bool stop_agreed = false;  // some rank was asked to stop, and all know
};

// What became of batch_size (train/batching/auto_batch.h).
struct Batching {
  int64_t found = 0;                       // by auto_batch_size; 0: not searched for
  int64_t trials = 0;                      // passes that the search took
  int64_t halvings = 0;                    // because memory ran out in the middle of the run
  int64_t eval_samples = 0;                // of an evaluation, whatever batch_size becomes
  double limit_bytes = 0, peak_bytes = 0;  // of the search, and of the pass that fitted
  bool updating = false;                   // the weights are moving: the step cannot be done again
};

// Where a resumed run came from.
struct Resumed {
  std::string from;  // "": a new run
  int64_t step = 0;
  std::vector<std::string> passed_over;     // newer checkpoints that were damaged
  std::optional<optim::Schedule> schedule;  // of the run that saved it; older ones may not say
};

struct Run {
  config::Settings settings;
  RunFolders claim;  // of its folders; run_id "": it has none, nothing of it is kept
  dist::World world;
  std::unique_ptr<engine::Engine> engine;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::shared_ptr<data::TokenData> train_data,
      val_data;  // val_data: null when there is no validation split
  std::unique_ptr<models::Model> model;
  std::optional<fp8::Decision> fp8_decision;  // when FP8 was asked for
  std::unique_ptr<nn::Fp8Model> fp8;          // when it runs
  std::unique_ptr<nn::Lora> lora;             // when adapters are trained
  BaseModel base;                             // that they are trained beside
  std::unique_ptr<nn::Probes> probes;
  std::unique_ptr<optim::AdamW> optimizer;
  std::unique_ptr<dist::Sharding> sharding;  // when there is more than one rank
  std::unique_ptr<dist::Replicas> replicas;  // when they are compared
  std::unique_ptr<data::Loader> loader;
  std::unique_ptr<StepGraph> graph;          // with cuda_graph
  std::unique_ptr<checkpoint::Saver> saver;  // from the first save on
  optim::Schedule schedule;
  Progress progress;
  monitor::SpikeDetector losses;    // of the steps that were applied
  std::vector<Incident> incidents;  // of this start of the run
  Batching batching;
  Resumed resumed;
  int64_t samples_left_out = 0;      // on this rank, because their tokens are damaged
  double own_seconds = 0;            // of the last step, without waits for other ranks
  std::vector<double> rank_seconds;  // the same of every rank, of the step before; empty alone

  int64_t tokens_per_step() const;      // over all micro-batches and ranks
  double uniform_loss() const;          // of a model that guesses every token: ln(vocabulary)
  std::string precision() const;        // as the step line shows it
  std::string plain_precision() const;  // of what is not in FP8: BF16 or FP32
};

// Builds everything; weights are initialised (or loaded from init_from), and when settings.resume
// asks for it the run continues from a checkpoint. `resumed_from` receives its folder. `writes`:
// the run is to have folders, which it claims before anything else (train/state/run_folders.h).
// kLater: the caller loads a checkpoint's weights.
std::unique_ptr<Run> assemble(config::Settings settings, std::string* resumed_from,
                              bool writes = false, Weights weights = Weights::kOfSettings);

// Model, adapters, optimizer and FP8 of a run whose settings and engine are there; `resolved` are
// the settings with_resolved_names().
void build_model(Run& run, const config::Settings& resolved, int64_t vocab,
                 Weights weights = Weights::kOfSettings);

// Names on the hub become folders; a model's own tokenizer is taken when none is given. A run keeps
// the names that it was given: folders differ from machine to machine.
config::Settings with_resolved_names(config::Settings settings);

// Decides what FP8 means on this device and moves the model's layers to it, when it was asked for.
void start_fp8(Run& run);

}  // namespace octavo::train
