#include <ATen/ATen.h>

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folders.h"
#include "checkpoint/manifest.h"
#include "checkpoint/part_list.h"
#include "checkpoint/reader.h"
#include "checkpoint/safetensors.h"

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

[[noreturn]] void fail_damaged(const fs::path& checkpoint,
                               const std::vector<std::string>& problems) {
  fail(ExitCode::kDamaged, "checkpoint", checkpoint.string(), " is damaged: ", join(problems, "; "),
       "; take another one (`octavo checkpoints list`)");
}

// What a rank's list says of its files, or the problem with the list.
std::vector<ManifestFile> listed_files(const fs::path& checkpoint, const Manifest& manifest,
                                       int rank, std::vector<std::string>& problems) {
  std::vector<ManifestFile> files;
  const PartEntry& entry = manifest.parts[static_cast<size_t>(rank)];
  if (std::string problem = size_problem(checkpoint, entry.name, entry.size); !problem.empty()) {
    problems.push_back(std::move(problem));
    return files;
  }
  try {
    for (ListedFile& listed : read_part(checkpoint, manifest, rank).files)
      files.push_back(std::move(listed.file));
  } catch (const Error& error) {
    if (error.code() != ExitCode::kDamaged) throw;
    problems.emplace_back(error.what());
  }
  return files;
}

std::vector<std::string> content_problems(const fs::path& checkpoint, const Manifest& manifest,
                                          int share = 0, int shares = 1) {
  std::vector<std::string> problems;
  const auto check = [&](const ManifestFile& file) {
    for (std::string& problem : file_problems(checkpoint, file, nullptr))
      problems.push_back(std::move(problem));
  };
  if (manifest.in_parts()) {
    for (auto rank = static_cast<size_t>(share); rank < manifest.parts.size();
         rank += static_cast<size_t>(shares))
      for (const ManifestFile& file :
           listed_files(checkpoint, manifest, static_cast<int>(rank), problems))
        check(file);
    return problems;
  }
  for (auto i = static_cast<size_t>(share); i < manifest.files.size();
       i += static_cast<size_t>(shares))
    check(manifest.files[i]);
  return problems;
}

void check_whole(const fs::path& checkpoint) {
  auto problems = content_problems(checkpoint, read_manifest(checkpoint));
  if (!problems.empty()) fail_damaged(checkpoint, problems);
}

void check_sizes(const fs::path& checkpoint) {
  const auto problems = size_problems(checkpoint, read_manifest(checkpoint));
  if (!problems.empty()) fail_damaged(checkpoint, problems);
}

// The state without tensors.
State state_of(const Manifest& manifest) {
  State state;
  state.step = manifest.step;
  state.tokens = manifest.tokens;
  state.precision = manifest.precision;
  state.recipe = manifest.recipe;
  state.has_val_loss = manifest.val_loss.has_value();
  state.val_loss = manifest.val_loss.value_or(0);
  state.extra = manifest.extra;
  return state;
}

void add_outlines(State& state) {
  for (const ManifestFile& file : state.reader->manifest().files) {
    if (state.groups.contains(file.group)) continue;
    auto& tensors = state.groups[file.group];
    for (const auto& [name, place] : state.reader->outlines(file.group))
      tensors.emplace_back(name,
                           at::empty(place.shape, at::TensorOptions(at::kMeta).dtype(place.dtype)));
  }
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

fs::path take_latest(const fs::path& directory,
                     const std::function<void(const fs::path&)>& attempt) {
  for (const StepFolder& folder : latest_candidates(directory)) {
    try {
      attempt(folder.path);
      return folder.path;
    } catch (const Error& error) {
      if (error.code() != ExitCode::kDamaged) throw;
      log_warn(str("CHECKPOINT NOT USABLE: ", error.what(), " — falling back to an older one"));
    }
  }
  fail(ExitCode::kDamaged, "checkpoint", "wanted a good checkpoint at or before `latest` in ",
       directory.string(), ", found only damaged ones (", available(directory),
       "); name one to resume from, or start without resume");
}

// The folder that `what` names, existing and real; not yet checked.
fs::path locate(const fs::path& directory, const std::string& what) {
  if (what == "best" || what == kBestLink) {
    auto link = read_link(directory, kBestLink);
    if (!link)
      fail(ExitCode::kUsage, "checkpoint", "wanted the best checkpoint in ", directory.string(),
           ", found no best_model link (it is made after the first evaluation); there is ",
           available(directory));
    return directory / *link;
  }
  fs::path path(what);
  bool plain_name = !what.empty() && !path.has_parent_path() && what != "." && what != "..";
  if (plain_name && fs::exists(directory / path)) path = directory / path;
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

fs::path resolve_with(const fs::path& directory, const std::string& what,
                      const std::function<void(const fs::path&)>& attempt) {
  return with_io_errors("read checkpoints in " + directory.string(), [&] {
    if (what == kLatestLink) return take_latest(directory, attempt);
    fs::path path = locate(directory, what);
    attempt(path);
    return path;
  });
}

}  // namespace

fs::path resolve(const fs::path& checkpoint_dir, const std::string& what) {
  return resolve_with(checkpoint_dir, what, check_whole);
}

Loaded load_resolved(const fs::path& checkpoint_dir, const std::string& what) {
  Loaded loaded;
  loaded.path =
      resolve_with(checkpoint_dir, what, [&](const fs::path& path) { loaded.state = load(path); });
  return loaded;
}

fs::path choose(const fs::path& checkpoint_dir, const std::string& what,
                const std::vector<fs::path>& damaged) {
  return resolve_with(checkpoint_dir, what, [&](const fs::path& path) {
    if (std::find(damaged.begin(), damaged.end(), path) != damaged.end())
      fail(ExitCode::kDamaged, "checkpoint", path.string(), " was found damaged");
    check_sizes(path);
  });
}

State open(const fs::path& checkpoint) {
  Manifest manifest = read_manifest(checkpoint);
  State state = state_of(manifest);
  state.reader = std::make_shared<Reader>(checkpoint, std::move(manifest));
  add_outlines(state);
  return state;
}

State load(const fs::path& checkpoint) {
  Manifest manifest = read_manifest(checkpoint);
  if (manifest.in_parts()) {
    auto problems = content_problems(checkpoint, manifest);
    if (!problems.empty()) fail_damaged(checkpoint, problems);
    return open(checkpoint);
  }
  State state = state_of(manifest);
  for (const ManifestFile& file : manifest.files) {
    std::optional<SafetensorsReader> reader;
    auto problems = file_problems(checkpoint, file, &reader);
    if (!problems.empty()) fail_damaged(checkpoint, problems);
    auto& tensors = state.groups[file.group];
    for (const auto& item : reader->tensors())
      tensors.emplace_back(item.first, reader->tensor(item.first));
  }
  return state;
}

namespace {

const at::Tensor* find_tensor(const State& state, const std::string& group,
                              const std::string& name) {
  const auto tensors = state.groups.find(group);
  if (tensors == state.groups.end()) return nullptr;
  const auto found = std::find_if(tensors->second.begin(), tensors->second.end(),
                                  [&](const auto& item) { return item.first == name; });
  return found == tensors->second.end() ? nullptr : &found->second;
}

}  // namespace

at::Tensor tensor(const State& state, const std::string& group, const std::string& name) {
  const at::Tensor* found = find_tensor(state, group, name);
  if (found == nullptr) return {};
  if (!found->is_meta() || state.reader == nullptr) return *found;
  return state.reader->rows(group, name, 0, row_count(found->sizes()));
}

at::Tensor rows(const State& state, const std::string& group, const std::string& name,
                int64_t first, int64_t count) {
  const at::Tensor* found = find_tensor(state, group, name);
  if (found == nullptr) return {};
  if (found->is_meta() && state.reader != nullptr)
    return state.reader->rows(group, name, first, count);
  const int64_t all = row_count(found->sizes());
  if (first < 0 || count < 0 || first > all || count > all - first)
    fail(ExitCode::kUsage, "checkpoint", "tensor ", quote_name(name), ": wanted ", count,
         " rows from row ", first, ", the checkpoint has ", all);
  return found->dim() == 0 ? *found : found->narrow(0, first, count);
}

std::vector<Summary> list(const fs::path& checkpoint_dir) {
  std::vector<Summary> summaries;
  auto latest = read_link(checkpoint_dir, kLatestLink), best = read_link(checkpoint_dir, kBestLink);
  for (const StepFolder& folder : step_folders(checkpoint_dir)) {
    try {
      Manifest manifest = read_manifest(folder.path);
      Summary summary;
      summary.path = folder.path;
      summary.step = manifest.step;
      summary.tokens = manifest.tokens;
      for (const ManifestFile& file : manifest.files) summary.bytes += file.size;
      summary.precision = manifest.precision;
      summary.recipe = manifest.recipe;
      summary.created = manifest.created;
      summary.val_loss = manifest.val_loss;
      std::string name = step_folder_name(folder.step);
      summary.is_latest = latest == name;
      summary.is_best = best == name;
      summaries.push_back(std::move(summary));
    } catch (const Error& error) {
      if (error.code() != ExitCode::kDamaged) throw;
      log_warn(str("checkpoint left out of the list: ", error.what()));
    }
  }
  return summaries;
}

std::vector<fs::path> step_paths(const fs::path& checkpoint_dir) {
  std::vector<fs::path> paths;
  for (StepFolder& folder : step_folders(checkpoint_dir)) paths.push_back(std::move(folder.path));
  return paths;
}

std::vector<std::string> verify(const fs::path& checkpoint) {
  return verify_share(checkpoint, 0, 1);
}

std::vector<std::string> verify_share(const fs::path& checkpoint, int share, int shares) {
  OCTAVO_ASSERT(share >= 0 && share < shares);
  try {
    return content_problems(checkpoint, read_manifest(checkpoint), share, shares);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kDamaged) throw;
    return {error.what()};
  }
}

}  // namespace octavo::checkpoint
