#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folders.h"
#include "checkpoint/manifest.h"

namespace octavo::checkpoint {

namespace {

// "step-00000250, step-00000500 (latest)" for messages; the newest steps when there are many.
std::string available(const fs::path& directory) {
  constexpr size_t kShown = 10;
  auto latest = read_link(directory, kLatestLink), best = read_link(directory, kBestLink);
  auto folders = step_folders(directory);
  std::vector<std::string> names;
  if (folders.size() > kShown) names.push_back(str(folders.size() - kShown, " older"));
  for (size_t i = folders.size() - std::min(folders.size(), kShown); i < folders.size(); ++i) {
    std::string name = folders[i].path.filename().string();
    if (name == latest)
      names.push_back(name + " (latest)");
    else if (name == best)
      names.push_back(name + " (best)");
    else
      names.push_back(name);
  }
  return names.empty() ? "no checkpoint" : join(names, ", ");
}

void check_whole(const fs::path& checkpoint) {
  read_manifest(checkpoint);  // its problem is said as it is
  auto problems = verify(checkpoint);
  if (!problems.empty()) fail_damaged(checkpoint, problems);
}

void check_sizes(const fs::path& checkpoint) {
  const auto problems = size_problems(checkpoint, read_manifest(checkpoint));
  if (!problems.empty()) fail_damaged(checkpoint, problems);
}

// The link's target, then older steps, newest first. Steps above the link belong to a branch of
// training that was given up by resuming from an earlier checkpoint.
std::vector<StepFolder> latest_candidates(const fs::path& directory) {
  auto folders = step_folders(directory);
  std::reverse(folders.begin(), folders.end());
  if (folders.empty())
    fail(ExitCode::kUsage, "checkpoint", "wanted the latest checkpoint in ", directory.string(),
         ", found none there; start without resume, or set checkpoint_dir to where they are");
  auto link = read_link(directory, kLatestLink);
  if (!link) {
    log_warn(str("checkpoint: no usable `latest` link in ", directory.string(), "; taking ",
                 folders.front().path.filename().string(), ", the highest step"));
    return folders;
  }
  int64_t wanted = *parse_step_folder(*link);
  std::erase_if(folders, [&](const StepFolder& folder) { return folder.step > wanted; });
  if (folders.empty() || folders.front().path.filename() != *link)
    log_warn(str("checkpoint: `latest` in ", directory.string(), " names ", *link,
                 ", which is not there; looking for the next older one"));
  return folders;
}

// What was taken, and what had to be passed over for it.
struct Resolved {
  fs::path path;
  std::vector<fs::path> passed_over;
};

Resolved take_latest(const fs::path& directory,
                     const std::function<void(const fs::path&)>& attempt) {
  Resolved resolved;
  for (const StepFolder& folder : latest_candidates(directory)) {
    try {
      attempt(folder.path);
      resolved.path = folder.path;
      return resolved;
    } catch (const Error& error) {
      if (error.code() != ExitCode::kDamaged) throw;
      log_warn(str("CHECKPOINT NOT USABLE: ", error.what(), " — falling back to an older one"));
      resolved.passed_over.push_back(folder.path);
    }
  }
  fail(ExitCode::kDamaged, "checkpoint", "wanted a good checkpoint at or before `latest` in ",
       directory.string(), ", found only damaged ones (", available(directory),
       "); name one to resume from, or start without resume");
}

// The folder of that name, or what a save that was killed while replacing it left aside.
fs::path step_or_aside(const fs::path& directory, const std::string& name) {
  if (!fs::exists(directory / name))
    for (const StepFolder& folder : step_folders(directory))
      if (step_folder_name(folder.step) == name) {
        log_warn(str("checkpoint: a save was killed while replacing ", name, "; taking ",
                     folder.path.filename().string(), ", the one before"));
        return folder.path;
      }
  return directory / name;
}

// The folder that `what` names, existing and real; not yet checked.
fs::path locate(const fs::path& directory, const std::string& what) {
  if (what == "best" || what == kBestLink) {
    auto link = read_link(directory, kBestLink);
    if (!link)
      fail(ExitCode::kUsage, "checkpoint", "wanted the best checkpoint in ", directory.string(),
           ", found no best_model link (it is made after the first evaluation); there is ",
           available(directory));
    return step_or_aside(directory, *link);
  }
  fs::path path(what);
  bool plain_name = !what.empty() && !path.has_parent_path() && what != "." && what != "..";
  if (plain_name && parse_step_folder(what))
    path = step_or_aside(directory, what);
  else if (plain_name && fs::exists(directory / path))
    path = directory / path;
  std::error_code error;
  fs::path real = fs::canonical(path, error);
  if (error || !fs::is_directory(real))
    fail(ExitCode::kUsage, "checkpoint", "wanted checkpoint ", quote_name(what),
         " (latest, best, a step folder or a path to one), found no such folder; in ",
         directory.string(), " there is ", available(directory));
  if (!fs::exists(real / kManifestName) && !step_folders(real).empty())
    fail(ExitCode::kUsage, "checkpoint", "wanted a checkpoint, found a folder of checkpoints at ",
         real.string(), "; name one of ", available(real));
  return real;
}

Resolved resolve_with(const fs::path& directory, const std::string& what,
                      const std::function<void(const fs::path&)>& attempt) {
  return with_io_errors("read checkpoints in " + directory.string(), [&] {
    if (what == kLatestLink) return take_latest(directory, attempt);
    fs::path path = locate(directory, what);
    attempt(path);
    return Resolved{path, {}};
  });
}

}  // namespace

fs::path resolve(const fs::path& checkpoint_dir, const std::string& what) {
  return resolve_with(checkpoint_dir, what, check_whole).path;
}

Loaded load_resolved(const fs::path& checkpoint_dir, const std::string& what) {
  Loaded loaded;
  Resolved resolved =
      resolve_with(checkpoint_dir, what, [&](const fs::path& path) { loaded.state = load(path); });
  loaded.path = std::move(resolved.path);
  loaded.passed_over = std::move(resolved.passed_over);
  return loaded;
}

fs::path choose(const fs::path& checkpoint_dir, const std::string& what,
                const std::vector<fs::path>& damaged, std::vector<fs::path>* passed_over) {
  Resolved resolved = resolve_with(checkpoint_dir, what, [&](const fs::path& path) {
    if (std::find(damaged.begin(), damaged.end(), path) != damaged.end())
      fail(ExitCode::kDamaged, "checkpoint", path.string(), " was found damaged");
    check_sizes(path);
  });
  if (passed_over != nullptr) *passed_over = std::move(resolved.passed_over);
  return resolved.path;
}

}  // namespace octavo::checkpoint
