#include "train/state/switched_precision.h"

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "fp8/execution.h"
#include "launch/rank_info.h"

namespace octavo::train {
namespace {

// The folder of a run's checkpoints; `run` "": of the run that saved last. "" when there is none.
fs::path folder_of(const fs::path& root, const std::string& run) {
  std::error_code error;
  if (!run.empty()) return fs::is_directory(root / run, error) ? root / run : root;
  const fs::path latest = fs::canonical(root / "latest", error);
  return error ? fs::path() : root / fs::relative(latest.parent_path(), root, error);
}

// Its latest or best checkpoint. `run`: the folder may be of more than one, from before each had
// its own.
std::optional<checkpoint::Summary> find_saved(const fs::path& folder, const std::string& run,
                                              bool best) {
  std::error_code error;
  if (folder.empty() || !fs::is_directory(folder, error)) return std::nullopt;
  std::optional<checkpoint::Summary> found;
  for (const checkpoint::Summary& saved : checkpoint::list(folder)) {
    if (!run.empty() && !saved.run.empty() && saved.run != run) continue;
    if (best ? saved.is_best : !found || saved.created > found->created) found = saved;
  }
  return found;
}

std::string default_root(bool fp8) {
  return fp8 ? "checkpoints_fp8" : "checkpoints";
}

// latest, best or a step: of which run is another question.
bool is_of_any_run(const std::string& what) {
  return what == "latest" || what == "best" || what == "best_model" || what.starts_with("step-");
}

// `what`: latest, best, a step or a run's name.
bool has_checkpoint(const fs::path& root, const std::string& what) {
  return !checkpoint::run_folders(root).empty() &&
         (is_of_any_run(what) || checkpoint::is_checkpoint_name(root, what));
}

}  // namespace

std::string root_of_checkpoint(const config::Settings& s) {
  if (!s.checkpoint_dir.empty()) return s.checkpoint_dir;
  const bool fp8 = fp8::wants_fp8(s);
  const std::string here = default_root(fp8), other = default_root(!fp8);
  const bool of_run = !s.run_name.empty() && is_of_any_run(s.checkpoint);
  const std::string& what = of_run ? s.run_name : s.checkpoint;
  std::error_code none;
  const bool is_path = fs::path(s.checkpoint).has_parent_path() || fs::exists(s.checkpoint, none);
  if (is_path || has_checkpoint(here, what) || !has_checkpoint(other, what)) return here;
  log_info(str("checkpoint: taken from ", other, ", since ", here, " has no ", what));
  return other;
}

std::string resume_of(const config::Settings& s, std::optional<bool> file_is_fp8) {
  const bool now = fp8::wants_fp8(s);
  const bool is_link = s.resume == "latest" || s.resume == "best";
  if (!is_link || !s.checkpoint_dir.empty()) return s.resume;
  const bool switched = file_is_fp8 && *file_is_fp8 != now;
  if (!switched && s.run_name.empty()) return s.resume;
  const bool best = s.resume == "best";
  const fs::path before = default_root(!now), here = default_root(now);
  const fs::path folder = folder_of(before, s.run_name);
  const auto saved = find_saved(folder, s.run_name, best);
  if (!saved) return s.resume;
  // The run may have continued in this precision since.
  const std::string name = s.run_name.empty() ? saved->run : s.run_name;
  const auto since = name.empty() ? std::nullopt : find_saved(folder_of(here, name), name, best);
  const bool is_since = since && (since->created > saved->created || (best && !switched));
  if (is_since && !switched) return s.resume;
  const fs::path taken = is_since ? since->path : saved->path;
  if (!is_since && launch::rank_info_from_environment().rank == 0)
    log_info(str("resume: the run's checkpoints are in ", before.string(), ", from when it was in ",
                 now ? "BF16" : "FP8"));
  // The folder, so that a damaged checkpoint gives way to the one before it.
  const bool own_folder = taken.parent_path().filename() == name;
  return (own_folder && !best ? taken.parent_path() : taken).string();
}

}  // namespace octavo::train
