#include "train/switched_precision.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "fp8/execution.h"

namespace octavo::train {
namespace {

// The folder of a run's checkpoints; `run` "": of the run that saved last. "" when there is none.
fs::path folder_of(const fs::path& root, const std::string& run) {
  std::error_code error;
  if (!run.empty()) return fs::is_directory(root / run, error) ? root / run : root;
  const fs::path latest = fs::canonical(root / "latest", error);
  return error ? fs::path() : root / fs::relative(latest.parent_path(), root, error);
}

// Its latest or best checkpoint.
std::optional<checkpoint::Summary> find_saved(const fs::path& folder, const std::string& which) {
  std::error_code error;
  if (folder.empty() || !fs::is_directory(folder, error)) return std::nullopt;
  for (const checkpoint::Summary& saved : checkpoint::list(folder))
    if (which == "best" ? saved.is_best : saved.is_latest) return saved;
  return std::nullopt;
}

std::string default_root(bool fp8) {
  return fp8 ? "checkpoints_fp8" : "checkpoints";
}

}  // namespace

std::string resume_of(const config::Settings& s, std::optional<bool> file_is_fp8) {
  const bool now = fp8::wants_fp8(s);
  const bool is_link = s.resume == "latest" || s.resume == "best";
  if (!is_link || !s.checkpoint_dir.empty()) return s.resume;
  const bool switched = file_is_fp8 && *file_is_fp8 != now;
  if (!switched && s.run_name.empty()) return s.resume;
  const fs::path before = default_root(!now), here = default_root(now);
  const fs::path folder = folder_of(before, s.run_name);
  const auto saved = find_saved(folder, s.resume);
  if (!saved) return s.resume;
  // The run may have gone on in this precision since.
  const std::string name = folder == before ? s.run_name : folder.filename().string();
  const auto since = find_saved(folder_of(here, name), s.resume);
  if (since && !switched) return s.resume;
  if (since && since->created > saved->created) return since->path.string();
  log_info(str("resume: the run's checkpoints are in ", before.string(), ", from when it was in ",
               now ? "BF16" : "FP8", ": ", saved->path.string()));
  return saved->path.string();
}

}  // namespace octavo::train
