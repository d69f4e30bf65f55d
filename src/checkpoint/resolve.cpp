#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folders.h"
#include "checkpoint/manifest.h"
#include "checkpoint/runs.h"

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
std::vector<StepFolder> latest_candidates(const RunCheckpoints& run_checkpoints) {
  const fs::path& directory = run_checkpoints.folder;
  auto folders = steps_of(run_checkpoints);
  std::reverse(folders.begin(), folders.end());
  if (folders.empty())
    fail(ExitCode::kUsage, "checkpoint", "wanted the latest checkpoint in ", directory.string(),
         ", found none there; train first (start without resume), or set checkpoint_dir to where "
         "they are");
  auto link = read_link(directory, kLatestLink);
  // The link may be another run's by now, or be about runs.
  const bool foreign =
      link && !run_checkpoints.only.empty() && run_of(directory / *link) != run_checkpoints.only;
  if (!link || foreign) {
    log_warn(str("checkpoint: no usable `latest` link in ", directory.string(),
                 run_checkpoints.only.empty() ? "" : " for run " + run_checkpoints.only,
                 "; taking ", folders.front().path.filename().string(), ", the highest step"));
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

Resolved take_latest(const RunCheckpoints& run_checkpoints,
                     const std::function<void(const fs::path&)>& attempt) {
  Resolved resolved;
  for (const StepFolder& folder : latest_candidates(run_checkpoints)) {
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
       run_checkpoints.folder.string(), ", found only damaged ones (",
       available(run_checkpoints.folder), "); name one to resume from, or start without resume");
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

fs::path locate_best(const RunCheckpoints& run_checkpoints) {
  const auto link = read_link(run_checkpoints.folder, kBestLink);
  if (!link)
    fail(ExitCode::kUsage, "checkpoint", "wanted the best checkpoint in ",
         run_checkpoints.folder.string(),
         ", found no best_model link (it is made after the first evaluation); there is ",
         available(run_checkpoints.folder));
  if (const std::string run = run_of(run_checkpoints.folder / *link);
      !run_checkpoints.only.empty() && run != run_checkpoints.only)
    fail(ExitCode::kUsage, "checkpoint", "wanted the best checkpoint of run ",
         quote_name(run_checkpoints.only), " in ", run_checkpoints.folder.string(),
         ", found that best_model is run ", quote_name(run), "'s; name a step: there is ",
         available(run_checkpoints.folder));
  return step_or_aside(run_checkpoints.folder, *link);
}

// A step by its name alone: of the run that is meant, else of the only one that has it.
fs::path locate_step(const fs::path& root, const std::string& name, const std::string& run) {
  const auto has = [&](const fs::path& folder) {
    return std::ranges::any_of(step_folders(folder),
                               [&](const auto& f) { return step_folder_name(f.step) == name; });
  };
  if (!run.empty() && has(root / run)) return step_or_aside(root / run, name);
  if (has(root)) return step_or_aside(root, name);
  std::vector<std::string> found;
  for (const std::string& other : runs_in(root))
    if (has(root / other)) found.push_back(other);
  if (found.size() > 1)
    fail(ExitCode::kUsage, "checkpoint", "wanted one checkpoint ", name, ", found one each of run ",
         join(found, ", run "), "; name it as ", found.front(), "/", name);
  return found.empty() ? root / name : step_or_aside(root / found.front(), name);
}

// Of a name as other trainers write it ("checkpoints/latest.pt"): what to write instead, or "".
std::string folder_hint(const std::string& what) {
  for (const std::string_view ending : {".pt", ".pth", ".ckpt", ".bin", ".safetensors"}) {
    if (!what.ends_with(ending) || what.size() == ending.size()) continue;
    const std::string name = what.substr(0, what.size() - ending.size());
    return str("; a checkpoint is a folder, write ", quote_name(name), " without ", ending);
  }
  return "";
}

// A word or a run that was meant, of a name that is none: "; did you mean latest?", or "".
std::string meant_hint(const fs::path& root, const std::string& what) {
  if (parse_step_folder(what)) return "";
  const std::vector<std::string> runs = run_names(root);
  std::vector<std::string_view> names = {kLatestLink, "best"};
  names.insert(names.end(), runs.begin(), runs.end());
  const std::string nearest = nearest_name(what, names);
  return nearest.empty() ? "" : str("; did you mean ", nearest, "?");
}

[[noreturn]] void fail_unknown(const fs::path& root, const std::string& what) {
  std::string there = available(root);
  if (const auto runs = runs_text(root); runs != "no run")
    there = there == "no checkpoint" ? runs : runs + ", and outside their folders " + there;
  const std::string hint = folder_hint(what);
  fail(ExitCode::kUsage, "checkpoint", "wanted checkpoint ", quote_name(what),
       " (latest, best, a run's name, a step folder or a path to one), found no such folder; in ",
       root.string(), " there is ", there, hint.empty() ? meant_hint(root, what) : hint);
}

bool is_plain(const std::string& what) {
  return !what.empty() && !fs::path(what).has_parent_path() && what != "." && what != "..";
}

// What is named by a name in the root, or by a path; it need not be there.
fs::path named_path(const fs::path& root, const std::string& what, const std::string& run) {
  if (is_plain(what) && parse_step_folder(what)) return locate_step(root, what, run);
  std::error_code none;
  const bool inside = fs::path(what).is_relative() && !what.empty() &&
                      fs::exists(root / what, none) && (is_plain(what) || !fs::exists(what, none));
  return inside ? root / what : fs::path(what);
}

// The folder that `what` names, existing and real; not yet checked.
fs::path locate(const fs::path& root, const std::string& what, const std::string& run,
                Purpose purpose) {
  if (what == "best" || what == kBestLink)
    return locate_best(run.empty() ? newest_run_checkpoints(root)
                                   : checkpoints_of(root, run, purpose));
  std::error_code error;
  const fs::path real = fs::canonical(named_path(root, what, run), error);
  if (error || !fs::is_directory(real)) fail_unknown(root, what);
  if (!fs::exists(real / kManifestName) && !runs_in(real).empty())
    fail(ExitCode::kUsage, "checkpoint", "wanted a checkpoint or a run's folder, found a folder ",
         "of runs at ", real.string(), "; name one of them: there is ", runs_text(real));
  return real;
}

// The run whose newest checkpoint is meant; nothing when `what` names one checkpoint.
std::optional<RunCheckpoints> wanted_run(const fs::path& root, const std::string& what,
                                         const std::string& run, Purpose purpose) {
  if (what == kLatestLink)
    return run.empty() ? newest_run_checkpoints(root) : checkpoints_of(root, run, purpose);
  if (what == "best" || what == kBestLink || what.empty()) return std::nullopt;
  if (is_plain(what) && parse_step_folder(what)) return std::nullopt;
  const fs::path path = named_path(root, what, run);
  std::error_code none;
  if (fs::is_directory(path, none) && !fs::exists(path / kManifestName, none) &&
      !step_folders(path).empty())
    return RunCheckpoints{path, ""};
  // A run from before it had a folder of its own.
  if (is_plain(what) && !fs::exists(path, none))
    if (RunCheckpoints older{root, what}; !steps_of(older).empty()) return older;
  return std::nullopt;
}

Resolved resolve_with(const fs::path& root, const std::string& what, const std::string& run,
                      Purpose purpose, const std::function<void(const fs::path&)>& attempt) {
  return with_io_errors("read checkpoints in " + root.string(), [&] {
    if (const auto run_checkpoints = wanted_run(root, what, run, purpose))
      return take_latest(*run_checkpoints, attempt);
    fs::path path = locate(root, what, run, purpose);
    attempt(path);
    return Resolved{path, {}};
  });
}

}  // namespace

fs::path resolve(const fs::path& checkpoint_dir, const std::string& what, const std::string& run) {
  return resolve_with(checkpoint_dir, what, run, Purpose::kRead, check_whole).path;
}

Loaded load_resolved(const fs::path& checkpoint_dir, const std::string& what,
                     const std::string& run) {
  Loaded loaded;
  // A training that resumes has asked owner_of() before.
  Resolved resolved = resolve_with(checkpoint_dir, what, run, Purpose::kRead,
                                   [&](const fs::path& path) { loaded.state = load(path); });
  loaded.path = std::move(resolved.path);
  loaded.passed_over = std::move(resolved.passed_over);
  return loaded;
}

fs::path choose(const fs::path& checkpoint_dir, const std::string& what,
                const std::vector<fs::path>& damaged, std::vector<fs::path>* passed_over,
                const std::string& run) {
  Resolved resolved =
      resolve_with(checkpoint_dir, what, run, Purpose::kResume, [&](const fs::path& path) {
        if (std::find(damaged.begin(), damaged.end(), path) != damaged.end())
          fail(ExitCode::kDamaged, "checkpoint", path.string(), " was found damaged");
        check_sizes(path);
      });
  if (passed_over != nullptr) *passed_over = std::move(resolved.passed_over);
  return resolved.path;
}

bool is_checkpoint_name(const fs::path& checkpoint_dir, const std::string& what) {
  std::error_code none;
  return what == kLatestLink || what == "best" || what == kBestLink ||
         (is_plain(what) && parse_step_folder(what)) || fs::exists(checkpoint_dir / what, none) ||
         fs::exists(fs::path(what) / kManifestName, none) ||
         (fs::is_directory(what, none) && !step_folders(what).empty()) ||
         (is_plain(what) && !steps_of({checkpoint_dir, what}).empty());
}

Owner owner_of(const fs::path& checkpoint_dir, const std::string& what, const std::string& run) {
  return with_io_errors("read checkpoints in " + checkpoint_dir.string(), [&] {
    std::vector<fs::path> candidates;
    if (const auto run_checkpoints = wanted_run(checkpoint_dir, what, run, Purpose::kResume)) {
      for (const StepFolder& folder : latest_candidates(*run_checkpoints))
        candidates.push_back(folder.path);
    } else {
      candidates.push_back(locate(checkpoint_dir, what, run, Purpose::kResume));
    }
    for (const fs::path& path : candidates) try {
        const Manifest manifest = read_manifest(path);
        return Owner{path, text_of(manifest.extra, kRunName), text_of(manifest.extra, kRunId)};
      } catch (const Error& error) {
        if (error.code() != ExitCode::kDamaged) throw;  // who loads it says what is wrong with it
      }
    return Owner{};
  });
}

}  // namespace octavo::checkpoint
