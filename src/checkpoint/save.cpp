#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folders.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

namespace octavo::checkpoint {

namespace {

std::string utc_now() {
  auto now = std::chrono::system_clock::now();
  std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  auto since = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char date[32], text[48];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text, sizeof text, "%s.%03dZ", date, static_cast<int>(since.count() % 1000));
  return text;
}

void check_state(const State& state, const SaveOptions& options) {
  if (state.step < 0)
    fail(ExitCode::kUsage, "checkpoint", "wanted a step >= 0 to save, found ", state.step);
  if (options.keep < 0)
    fail(ExitCode::kUsage, "checkpoint", "wanted the number of checkpoints to keep >= 0, found ",
         options.keep);
  if (state.groups.empty())
    fail(ExitCode::kUsage, "checkpoint",
         "wanted at least one group of tensors to save, found none");
  for (const auto& group : state.groups) {
    std::string problem = file_name_problem(group.first + kShardSuffix);
    if (!problem.empty())
      fail(ExitCode::kUsage, "checkpoint", "group name ", quote_name(group.first),
           " refused: ", problem);
  }
}

// Tensors, and room for headers and the manifest. An existing checkpoint stays until the new one is
// whole, so nothing is credited for it.
uint64_t bytes_needed(const State& state) {
  constexpr uint64_t kFixed = uint64_t{1} << 20, kPerTensor = 2048;
  uint64_t total = kFixed;
  for (const auto& group : state.groups) {
    for (const auto& item : group.second) {
      if (!item.second.defined()) continue;  // refused by the writer, with its name
      uint64_t size = checked_mul(static_cast<uint64_t>(item.second.numel()),
                                  static_cast<uint64_t>(item.second.element_size()), "tensor size");
      total = checked_add(total, checked_add(size, kPerTensor, "tensor size"), "checkpoint size");
    }
  }
  return total;
}

void check_space(const fs::path& directory, const State& state) {
  uint64_t needed = bytes_needed(state), available = fs::space(directory).available;
  if (needed > available)
    fail(ExitCode::kEnvironment, "checkpoint", "wanted ", format_bytes(static_cast<double>(needed)),
         " free in ", directory.string(), " for step ", state.step, ", found ",
         format_bytes(static_cast<double>(available)),
         "; free space, keep fewer checkpoints or set another checkpoint_dir");
}

void write_folder(const fs::path& folder, const State& state) {
  Manifest manifest;
  manifest.step = state.step;
  manifest.tokens = state.tokens;
  manifest.precision = state.precision;
  manifest.recipe = state.recipe;
  manifest.created = utc_now();
  manifest.extra = state.extra;
  if (state.has_val_loss && std::isfinite(state.val_loss))
    manifest.val_loss = state.val_loss;
  else if (state.has_val_loss)
    log_warn(str("checkpoint of step ", state.step, ": the validation loss is ", state.val_loss,
                 "; stored as none"));
  for (const auto& group : state.groups) {
    std::string name = group.first + kShardSuffix;
    WrittenFile written = write_safetensors_hashed(folder / name, group.second, {{"format", "pt"}});
    manifest.files.push_back({name, written.size, written.hash, std::move(written.tensor_hashes)});
  }
  std::string text = manifest_text(manifest);
  parse_manifest(text, "manifest to be written");  // refuse now what could not be loaded later
  FileWriter file(folder / kManifestName);
  file.write(std::string_view(text));
  file.close();
  fsync_path(folder);
}

// Cheap check for retention: manifest readable, every file there with its size.
bool looks_whole(const fs::path& folder) {
  try {
    for (const ManifestFile& file : read_manifest(folder).files) {
      std::error_code error;
      if (fs::file_size(folder / file.name, error) != file.size || error) return false;
    }
    return true;
  } catch (const Error& error) {
    if (error.code() != ExitCode::kDamaged) throw;
    return false;
  }
}

void apply_retention(const fs::path& directory, int keep) {
  auto summaries = list(directory);
  // Saved last first: after a return to an older checkpoint, higher steps are the older ones.
  std::sort(summaries.begin(), summaries.end(), [](const Summary& a, const Summary& b) {
    return std::tie(a.created, a.step) > std::tie(b.created, b.step);
  });
  int kept = 0;
  for (const Summary& summary : summaries) {
    if (!looks_whole(summary.path)) {
      log_warn(str("checkpoint: ", summary.path.string(),
                   " is not whole; it does not count as kept and is left for you to remove"));
      continue;
    }
    if (kept < keep) {
      ++kept;
      continue;
    }
    if (summary.is_latest || summary.is_best) continue;
    log_info(
        str("checkpoint: removing ", summary.path.string(), ", the newest ", keep, " are kept"));
    remove_folder(summary.path);
  }
}

fs::path save_locked(const fs::path& checkpoint_dir, const State& state,
                     const SaveOptions& options) {
  std::string name = step_folder_name(state.step);
  fs::path target = checkpoint_dir / name;
  fs::path temporary = temporary_path(checkpoint_dir, ".tmp-", name);
  fs::remove_all(temporary);
  fs::create_directory(temporary);
  try {
    write_folder(temporary, state);
  } catch (...) {
    std::error_code ignored;  // the first failure is the one to tell
    fs::remove_all(temporary, ignored);
    throw;
  }
  install_folder(temporary, target);
  // latest moves last: a run killed between the two resumes before this save and repeats it, while
  // one that resumed after it would take the best loss as already linked.
  if (options.best) point_link(checkpoint_dir, kBestLink, name);
  point_link(checkpoint_dir, kLatestLink, name);
  if (options.keep > 0) apply_retention(checkpoint_dir, options.keep);
  return target;
}

}  // namespace

fs::path save(const fs::path& checkpoint_dir, const State& state, const SaveOptions& options) {
  check_state(state, options);
  return with_io_errors("save a checkpoint into " + checkpoint_dir.string(), [&] {
    if (fs::create_directories(checkpoint_dir))
      fsync_path(fs::absolute(checkpoint_dir).parent_path());
    DirectoryLock lock(checkpoint_dir);
    if (lock.held()) clean_leftovers(checkpoint_dir);
    check_space(checkpoint_dir, state);
    return save_locked(checkpoint_dir, state, options);
  });
}

}  // namespace octavo::checkpoint
