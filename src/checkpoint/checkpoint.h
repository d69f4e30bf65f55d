#pragma once
// A checkpoint is a folder `step-00000250/` with safetensors shards and manifest.json, which is
// written last: a folder without one does not exist. `latest` and `best_model` are relative
// symlinks, replaced atomically. A save writes into a hidden temporary folder, fsyncs everything,
// renames the folder, then moves the links: kill -9 at any point leaves every older checkpoint
// loadable. Of a run of many ranks each writes the rows it has (saver.h), and any number of ranks
// reads any rows.
//
// Every run has a folder of its own below checkpoint_dir, named as the run: checkpoints/<run>/,
// with its own `latest` and `best_model`; checkpoints/latest names the run that saved last. Before
// that, all runs saved into checkpoint_dir itself; what lies there is read, and never written to
// again.

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"

namespace octavo::checkpoint {

// A tensor of the state that is some rows of a larger one.
struct Slice {
  std::vector<int64_t> full_shape;
  int64_t first_row = 0;
};

class Reader;

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
  // To save: which tensors (group, name) are slices. A tensor that ranks share by rows must be here
  // on all of them, also on one that has all of its rows or none.
  std::map<std::string, std::map<std::string, Slice>> slices;
  // To save in the background: groups that may change before Saver::before_update(). They are
  // copied at once.
  std::set<std::string> changing;
  // Loaded: where tensor() and rows() read. Tensors of `groups` on the meta device are outlines,
  // which have a type and a shape.
  std::shared_ptr<Reader> reader;
};

// The place of a process in a run that saves together.
struct Part {
  int rank = 0, ranks = 1;
  int shards = 0;     // rank r has slice r % shards of every sharded tensor; 0: as many as ranks
  std::string token;  // the same on all ranks, another one for each start of a run
};

struct Summary {  // one row of `checkpoints list`, from the manifest alone
  fs::path path;
  std::string run;  // its name; "" when the manifest has none
  std::string run_id;
  int64_t step = 0;
  uint64_t tokens = 0, bytes = 0;
  std::string precision, recipe, created;  // created: UTC, ISO 8601 with milliseconds
  std::optional<double> val_loss;
  bool is_latest = false, is_best = false;
  bool is_permanent = false;  // `keep` leaves it alone
};

struct SaveOptions {
  bool best = false;  // also move best_model
  // The folder is a run's own, and `latest` of the folder above it becomes a link to it.
  bool newest_run = false;
  bool permanent = false;  // marked so: `keep` never removes it
  // Of a Saver: the step at which a permanent one was due last; 0: none was. It is permanent when
  // no save since then has made that one.
  int64_t permanent_due = 0;
  // 0: all; else the `keep` saved last, and always latest's and best_model's targets, and those
  // that are permanent, or whose step is a multiple of `permanent_every` (0: none is).
  int keep = 0;
  int64_t permanent_every = 0;
  // Whether one that `keep` would remove is still needed: it is being uploaded.
  std::function<bool(const fs::path& checkpoint)> in_use;
  // Called with the name of each stage of a save once it is done, for tests and traces.
  std::function<void(std::string_view stage)> on_stage;
};

// Returns the folder. Free space is checked first; a checkpoint of the same step is replaced. Saves
// into one directory exclude each other. `keep` removes none that another run made: its run_id, or
// when one of the two has none its run_name, is another one in `extra`.
fs::path save(const fs::path& checkpoint_dir, const State& state, const SaveOptions& options);

// What a save does with `keep` once it is done: with what `in_use` says by now. `extra`: of a
// checkpoint of the run. What goes wrong is a warning: the checkpoint is saved.
void remove_old(const fs::path& checkpoint_dir, const SaveOptions& options, const Json& extra);

// An error when a save of this state into this folder, which is there, would have no room.
void check_room(const fs::path& folder, const State& state);

// `what`: "latest", "best", a run's name, a step folder ("step-00000250", "RUN/step-00000250") or a
// path to one or to a run's folder. `run`: the run whose latest, best or step is meant; "": of the
// run that saved last. Damaged: when the newest of a run was asked for ("latest", a run) the next
// older good one of it is taken, with a loud warning; otherwise an error. Empty directory with
// "latest": an error that says so. Hashes everything: where the state is wanted too,
// load_resolved() reads once.
fs::path resolve(const fs::path& checkpoint_dir, const std::string& what,
                 const std::string& run = "");

// For many ranks: one of them chooses and tells the others. Checks the manifest and the sizes of
// all files, and no hash. `damaged`: those that were chosen before and found to be so; the fallback
// resumes from them. `passed_over` receives all that were.
fs::path choose(const fs::path& checkpoint_dir, const std::string& what,
                const std::vector<fs::path>& damaged = {},
                std::vector<fs::path>* passed_over = nullptr, const std::string& run = "");

// Whether resolve() would look for it here, and not for a model of that name elsewhere.
bool is_checkpoint_name(const fs::path& checkpoint_dir, const std::string& what);

// Whose checkpoint resolve() would take: looks at manifests alone. All empty when every candidate
// is damaged.
struct Owner {
  fs::path path;
  std::string run, run_id;
};
Owner owner_of(const fs::path& checkpoint_dir, const std::string& what, const std::string& run);

// Reads the manifest alone. All tensors are outlines; tensor() and rows() check what they touch.
State open(const fs::path& checkpoint);

// Checks the manifest and every file's size and hash, then reads. Tensors are views of mapped
// files; those that several ranks wrote are outlines.
State load(const fs::path& checkpoint);

// A loaded tensor, undefined when there is none of that name; or rows [first, first + count) of
// one, from the files of whichever ranks have them. Reads and checks the pieces that it needs and
// no others. A damaged one is an error that names file and tensor.
at::Tensor tensor(const State& state, const std::string& group, const std::string& name);
at::Tensor rows(const State& state, const std::string& group, const std::string& name,
                int64_t first, int64_t count);

struct Loaded {
  fs::path path;
  State state;
  std::vector<fs::path> passed_over;  // damaged ones that are newer
};

// resolve() and load() in one pass over the files, with the same fallback.
Loaded load_resolved(const fs::path& checkpoint_dir, const std::string& what,
                     const std::string& run = "");

// Of one folder, oldest step first. Folders whose manifest cannot be read are left out, with a
// warning each. `permanent_every`: as SaveOptions has it; 0: those that are marked are permanent.
std::vector<Summary> list(const fs::path& folder, int64_t permanent_every = 0);
// The validation loss of the checkpoint that best_model of a folder names; nothing when there is no
// such checkpoint, or it has none.
std::optional<double> best_val_loss(const fs::path& folder);
// Every step folder of one folder, oldest step first: what list() shows and what it leaves out.
std::vector<fs::path> step_paths(const fs::path& folder);
// checkpoint_dir itself when it has checkpoints (one run's, or those from before runs had folders
// of their own), then the folders of the runs in it, by name.
std::vector<fs::path> run_folders(const fs::path& checkpoint_dir);
// What saves made in a run's folder, and nothing else that lies there.
void remove_checkpoints(const fs::path& folder);
// Every problem found, one line each; empty when whole.
std::vector<std::string> verify(const fs::path& checkpoint);
// The same of every `shares`-th file: ranks divide the work.
std::vector<std::string> verify_share(const fs::path& checkpoint, int share, int shares);

}  // namespace octavo::checkpoint
