#pragma once
// A run to and from a checkpoint.

#include <string>

#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "train/run.h"

namespace octavo::train {

std::string checkpoint_dir(const config::Settings& settings);

// Everything needed to go on bit for bit: masters, moments, step, data position.
fs::path save(const Run& run, const std::string& run_name, bool best, const double* val_loss);

// Puts the run into the state of the checkpoint that settings.resume names. Returns the
// checkpoint's folder.
std::string resume(Run& run);

// The weights alone, frozen, to generate, evaluate and export: of a checkpoint (latest, best, a
// path), of a Hugging Face folder or name, or of adapters, merged into the model they belong to.
struct Loaded {
  std::unique_ptr<engine::Engine> engine;
  std::unique_ptr<models::Model> model;
  std::string tokenizer;  // name to load it by
  std::string
      tokenizer_fingerprint;  // "" for a Hugging Face folder: whatever lies beside the weights
};
Loaded load_model(const config::Settings& settings);

}  // namespace octavo::train
