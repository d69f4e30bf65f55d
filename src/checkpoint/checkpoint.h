#pragma once
// A checkpoint is a folder `step-00000250/` with safetensors shards and manifest.json, which is
// written last: a folder without one does not exist. `latest` and `best_model` are relative
// symlinks, replaced atomically. A save writes into a hidden temporary folder, fsyncs everything,
// renames the folder, then moves the links: kill -9 at any point leaves every older checkpoint
// loadable.

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"

namespace octavo::checkpoint {

struct State {
  int64_t step = 0;
  uint64_t tokens = 0;
  std::string precision = "BF16", recipe;  // recipe: "" unless FP8
  // Of the newest evaluation; has_val_loss says whether there was one. A loss that is not finite is
  // stored as none, with a warning.
  double val_loss = 0;
  bool has_val_loss = false;
  Json extra = Json::object();  // data position, random state, config, model, layout: of src/train
  // Groups become files: {"model": …, "optimizer": …} -> model.safetensors, optimizer.safetensors.
  std::map<std::string, std::vector<std::pair<std::string, at::Tensor>>> groups;
};

struct Summary {  // one row of `checkpoints list`, from the manifest alone
  fs::path path;
  int64_t step = 0;
  uint64_t tokens = 0, bytes = 0;
  std::string precision, recipe, created;  // created: UTC, ISO 8601 with milliseconds
  std::optional<double> val_loss;
  bool is_latest = false, is_best = false;
};

struct SaveOptions {
  bool best = false;  // also move best_model
  // 0: all; else the `keep` saved last, and always latest's and best_model's targets.
  int keep = 0;
};

// Returns the folder. Free space is checked first; a checkpoint of the same step is replaced. Saves
// into one directory exclude each other.
fs::path save(const fs::path& checkpoint_dir, const State& state, const SaveOptions& options);

// `what`: "latest", "best", a step folder or a path to one. Damaged: when `what` is "latest" the
// next older good one is taken, with a loud warning; otherwise an error. Empty directory with
// "latest": an error that says so. Hashes everything: where the state is wanted too,
// load_resolved() reads once.
fs::path resolve(const fs::path& checkpoint_dir, const std::string& what);

// Checks the manifest and every file's size and hash, then reads. Tensors are views of mapped
// files.
State load(const fs::path& checkpoint);

struct Loaded {
  fs::path path;
  State state;
};

// resolve() and load() in one pass over the files, with the same fallback.
Loaded load_resolved(const fs::path& checkpoint_dir, const std::string& what);

// Oldest step first. Folders whose manifest cannot be read are left out, with a warning each.
std::vector<Summary> list(const fs::path& checkpoint_dir);
// Every step folder, oldest step first: what list() shows and what it leaves out.
std::vector<fs::path> step_paths(const fs::path& checkpoint_dir);
// Every problem found, one line each; empty when whole.
std::vector<std::string> verify(const fs::path& checkpoint);

}  // namespace octavo::checkpoint
