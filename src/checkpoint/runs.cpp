#include "checkpoint/runs.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"

namespace octavo::checkpoint {
namespace {

// When the newest of these was saved; "" when there is none with a manifest.
std::string last_saved(const std::vector<StepFolder>& folders) {
  std::string last;
  for (const StepFolder& folder : folders) try {
      last = std::max(last, read_manifest(folder.path).created);
    } catch (const Error& error) {
      if (error.code() != ExitCode::kDamaged) throw;
    }
  return last;
}

// There is no link to go by.
RunCheckpoints newest_by_time(const fs::path& root, const std::vector<std::string>& runs) {
  RunCheckpoints newest{root, ""};
  std::string last = last_saved(step_folders(root));
  for (const std::string& run : runs)
    if (std::string saved = last_saved(step_folders(root / run)); saved > last) {
      newest.folder = root / run;
      last = std::move(saved);
    }
  log_warn(str("checkpoint: no usable `latest` link in ", root.string(), "; taking ",
               newest.folder.string(), ", where the last save was"));
  return newest;
}

}  // namespace

std::string run_of(const fs::path& step_folder) {
  try {
    return text_of(read_manifest(step_folder).extra, kRunName);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kDamaged) throw;
    return "";
  }
}

std::vector<std::string> run_names(const fs::path& root) {
  std::vector<std::string> names = runs_in(root);
  for (const StepFolder& folder : step_folders(root))
    if (std::string run = run_of(folder.path);
        !run.empty() && std::find(names.begin(), names.end(), run) == names.end())
      names.push_back(std::move(run));
  return names;
}

std::string runs_text(const fs::path& root) {
  constexpr size_t kShown = 10;
  std::vector<std::string> names = run_names(root);
  if (names.empty()) return "no run";
  const size_t more = names.size() - std::min(kShown, names.size());
  names.resize(names.size() - more);
  return "run " + join(names, ", run ") + (more > 0 ? str(" and ", more, " more") : "");
}

RunCheckpoints checkpoints_of(const fs::path& root, const std::string& run, Purpose purpose) {
  if (!step_folders(root / run).empty()) return {root / run, ""};
  const RunCheckpoints older{root, run};
  if (!steps_of(older).empty()) return older;
  const std::string others = runs_text(root);
  const bool resumes = purpose == Purpose::kResume;
  const std::string key = resumes ? "--resume" : "--checkpoint";
  fail(ExitCode::kUsage, "checkpoint", "wanted a checkpoint of run ", quote_name(run), " in ",
       (root / run).string(), ", found none there; in ", root.string(), " there is ", others,
       others == "no run" ? "" : " (" + key + " NAME takes that one)", "; ",
       resumes ? "start without resume, or " : "", "set checkpoint_dir to where they are");
}

RunCheckpoints newest_run_checkpoints(const fs::path& root) {
  if (const std::string run = newest_run(root); !run.empty()) return {root / run, ""};
  const auto runs = runs_in(root);
  std::error_code none;
  const std::string link = fs::read_symlink(root / kLatestLink, none).string();
  if (!runs.empty() && !parse_step_folder(link)) return newest_by_time(root, runs);
  // One run, or several from before they had folders: the link says whose.
  return {root, parse_step_folder(link) ? run_of(root / link) : ""};
}

std::vector<StepFolder> steps_of(const RunCheckpoints& run_checkpoints) {
  std::vector<StepFolder> folders = step_folders(run_checkpoints.folder);
  if (!run_checkpoints.only.empty())
    std::erase_if(folders,
                  [&](const StepFolder& f) { return run_of(f.path) != run_checkpoints.only; });
  return folders;
}

std::vector<fs::path> run_folders(const fs::path& checkpoint_dir) {
  std::vector<fs::path> folders;
  if (!step_folders(checkpoint_dir).empty()) folders.push_back(checkpoint_dir);
  for (const std::string& run : runs_in(checkpoint_dir)) folders.push_back(checkpoint_dir / run);
  return folders;
}

}  // namespace octavo::checkpoint
