#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folders.h"
#include "checkpoint/manifest.h"
#include "checkpoint/part_list.h"
#include "checkpoint/reader.h"
#include "checkpoint/safetensors.h"

namespace octavo::checkpoint {

namespace {

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

}  // namespace

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

std::vector<Summary> list(const fs::path& checkpoint_dir, int64_t permanent_every) {
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
      summary.run = text_of(manifest.extra, kRunName);
      summary.run_id = text_of(manifest.extra, kRunId);
      std::string name = step_folder_name(folder.step);
      summary.is_latest = latest == name;
      summary.is_best = best == name;
      summary.is_permanent = is_permanent(manifest, permanent_every);
      summaries.push_back(std::move(summary));
    } catch (const Error& error) {
      if (error.code() != ExitCode::kDamaged) throw;
      log_warn(str("checkpoint left out of the list: ", error.what()));
    }
  }
  return summaries;
}

namespace {

// That a file is not there is an answer; that a disk does not answer is none.
void check_answers(const fs::path& path) {
  std::error_code problem;
  if (fs::symlink_status(path, problem).type() == fs::file_type::none)
    fail(ExitCode::kEnvironment, "checkpoint", "cannot examine ", path.string(), ": ",
         problem.message());
}

}  // namespace

std::optional<double> best_val_loss(const fs::path& folder) {
  check_answers(folder / kBestLink);
  const auto best = read_link(folder, kBestLink);
  if (!best) return std::nullopt;
  check_answers(folder / *best / kManifestName);
  try {
    return read_manifest(folder / *best).val_loss;
  } catch (const Error& error) {
    if (error.code() != ExitCode::kDamaged) throw;
    return std::nullopt;
  }
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
