#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "base/error.h"
#include "base/host.h"
#include "base/log.h"
#include "base/progress.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folders.h"
#include "checkpoint/pieces.h"
#include "checkpoint/save_job.h"

namespace octavo::checkpoint {

namespace {

// Retention goes by these times: a clock that was set back must not make a new checkpoint the
// oldest one.
std::string not_before_latest(const fs::path& directory, std::string now) {
  const auto latest = read_link(directory, kLatestLink);
  if (!latest) return now;
  try {
    std::string before = read_manifest(directory / *latest).created;
    if (before <= now) return now;
    log_warn_once(
        "checkpoint: the clock says a time before that of the latest checkpoint; new ones get the "
        "latest one's time, so that they count as newer");
    return before;
  } catch (const Error&) {  // whoever loads it says what is wrong with it
    return now;
  }
}

// All of the tensors, other ranks' rows too, and room for headers and the manifest. An existing
// checkpoint stays until the new one is whole, so nothing is credited for it.
uint64_t bytes_needed(const State& state) {
  constexpr uint64_t kFixed = uint64_t{1} << 20, kPerTensor = 2048;
  uint64_t total = kFixed;
  for (const auto& group : state.groups) {
    for (const auto& item : group.second) {
      if (!item.second.defined()) continue;  // refused by the writer, with its name
      uint64_t size = full_bytes(state, group.first, item.first, item.second);
      total = checked_add(total, checked_add(size, kPerTensor, "tensor size"), "checkpoint size");
    }
  }
  return total;
}

// Cheap check for retention: manifest readable, every file there with its size.
bool looks_whole(const fs::path& folder) {
  try {
    return size_problems(folder, read_manifest(folder)).empty();
  } catch (const Error& error) {
    if (error.code() != ExitCode::kDamaged) throw;
    return false;
  }
}

// Older ones may go because of the only one that is kept: its hashes are compared first. Where
// several are kept, the look above must do.
bool reads_well(const fs::path& folder) {
  const auto problems = verify(folder);
  for (const std::string& problem : problems)
    log_warn(str("CHECKPOINT NOT USABLE: read back after the save: ", problem));
  return problems.empty();
}

fs::path save_alone(const SaveJob& job) {
  std::string name = step_folder_name(job.state.step);
  fs::path temporary = temporary_path(job.directory, ".tmp-", name);
  fs::remove_all(temporary);
  fs::create_directory(temporary);
  job.stage("folder");
  try {
    Manifest manifest = begin_manifest(job);
    for (const auto& group : job.state.groups)
      manifest.files.push_back(
          write_group(job, temporary, group.first, group.first + kShardSuffix));
    write_manifest(manifest, temporary);
    job.stage("manifest");
    fs::path path = install(job, temporary);
    move_links(job);
    return path;
  } catch (...) {
    std::error_code ignored;  // the first failure is the one to tell
    fs::remove_all(temporary, ignored);
    throw;
  }
}

void remove_beyond_keep(const fs::path& directory, const SaveOptions& options, const Json& extra) {
  const int keep = options.keep;
  if (keep == 0) return;
  auto summaries = list(directory, options.permanent_every);
  std::erase_if(summaries, [&](const Summary& s) {
    const bool foreign = is_of_another_run(s.run, s.run_id, extra);
    if (foreign)
      log_warn_once(str("checkpoint: ", s.path.string(), " is another run's (", s.run,
                        "): it is left alone, and does not count as kept"));
    return foreign;
  });
  // Saved last first: after a return to an older checkpoint, higher steps are the older ones.
  std::sort(summaries.begin(), summaries.end(), [](const Summary& a, const Summary& b) {
    return std::tie(a.created, a.step) > std::tie(b.created, b.step);
  });
  const bool reads_back = keep == 1 && summaries.size() > 1;
  int kept = 0;
  for (const Summary& summary : summaries) {
    if (!looks_whole(summary.path) || (reads_back && kept < keep && !reads_well(summary.path))) {
      log_warn(str("checkpoint: ", summary.path.string(),
                   " is not whole; it does not count as kept and is left for you to remove"));
      continue;
    }
    if (kept < keep) {
      ++kept;
      continue;
    }
    if (summary.is_latest || summary.is_best || summary.is_permanent) continue;
    if (options.in_use && options.in_use(summary.path)) {
      log_info(str("checkpoint: ", summary.path.string(), " stays until it is uploaded"));
      continue;
    }
    log_info(
        str("checkpoint: removing ", summary.path.string(), ", the newest ", keep, " are kept"));
    remove_folder(summary.path);
  }
}

}  // namespace

void remove_old(const fs::path& directory, const SaveOptions& options, const Json& extra) {
  try {
    remove_beyond_keep(directory, options, extra);
  } catch (const std::exception& error) {
    log_warn(str("checkpoint: older checkpoints in ", directory.string(), " were not removed (",
                 error.what(), "); the next save does it"));
  }
}

void check_job(const SaveJob& job) {
  const State& state = job.state;
  if (state.step < 0)
    fail(ExitCode::kUsage, "checkpoint", "wanted a step >= 0 to save, found ", state.step);
  if (job.options.keep < 0)
    fail(ExitCode::kUsage, "checkpoint", "wanted the number of checkpoints to keep >= 0, found ",
         job.options.keep);
  if (state.groups.empty())
    fail(ExitCode::kUsage, "checkpoint",
         "wanted at least one group of tensors to save, found none");
  for (const auto& group : state.groups) {
    std::string problem = file_name_problem(group.first + kShardSuffix);
    if (!problem.empty())
      fail(ExitCode::kUsage, "checkpoint", "group name ", quote_name(group.first),
           " refused: ", problem);
  }
  if (job.part.ranks > 1) return;
  for (const auto& group : state.slices)
    for (const auto& item : group.second)
      if (item.second.first_row != 0)
        fail(ExitCode::kUsage, "checkpoint", "tensor ", quote_name(item.first),
             " is a slice, and there is one rank to save it");
}

void check_space(const SaveJob& job) {
  uint64_t needed = bytes_needed(job.state), available = fs::space(job.directory).available;
  if (needed > available)
    fail(ExitCode::kEnvironment, "checkpoint", "wanted ", format_bytes(static_cast<double>(needed)),
         " free in ", job.directory.string(), " for step ", job.state.step, ", found ",
         format_bytes(static_cast<double>(available)),
         "; free space, keep fewer checkpoints or set another checkpoint_dir");
}

void check_room(const fs::path& folder, const State& state) {
  SaveJob job;
  job.directory = folder;
  job.state = state;
  with_io_errors("look for space in " + folder.string(), [&] { check_space(job); });
}

Manifest begin_manifest(const SaveJob& job) {
  const State& state = job.state;
  Manifest manifest;
  manifest.step = state.step;
  manifest.tokens = state.tokens;
  manifest.precision = state.precision;
  manifest.recipe = state.recipe;
  manifest.created = not_before_latest(job.directory, utc_now(3));
  manifest.permanent = job.options.permanent;
  manifest.extra = state.extra;
  if (state.has_val_loss && std::isfinite(state.val_loss))
    manifest.val_loss = state.val_loss;
  else if (state.has_val_loss)
    log_warn(str("checkpoint of step ", state.step, ": the validation loss is ", state.val_loss,
                 "; stored as none"));
  return manifest;
}

ManifestFile write_group(const SaveJob& job, const fs::path& folder, const std::string& group,
                         const std::string& file_name) {
  const std::map<std::string, std::string> metadata = {{"format", "pt"}};
  const auto own = job.own.find(group);
  const NamedTensors none;
  const NamedTensors& tensors = own == job.own.end() ? none : own->second;
  WrittenFile written = job.feed ? write_safetensors_fed(
                                       folder / file_name, tensors,
                                       [&](const std::string& name, const ByteConsumer& take) {
                                         job.feed(group, name, take);
                                       },
                                       metadata)
                                 : write_safetensors_hashed(folder / file_name, tensors, metadata);
  job.stage(file_name);
  return {file_name,           written.size, written.hash, std::move(written.tensor_hashes),
          written.header_hash, group,        job.part.rank};
}

void write_manifest(const Manifest& manifest, const fs::path& folder) {
  std::string text = manifest_text(manifest);
  parse_manifest(text, "manifest to be written");  // refuse now what could not be loaded later
  FileWriter file(folder / kManifestName);
  file.write(std::string_view(text));
  file.close();
  fsync_path(folder);
}

fs::path install(const SaveJob& job, const fs::path& folder) {
  fs::path target = job.directory / step_folder_name(job.state.step);
  install_folder(folder, target);
  return target;
}

void move_links(const SaveJob& job) {
  const std::string name = step_folder_name(job.state.step);
  job.stage("installed");
  // latest moves last: a run killed between the two resumes before this save and repeats it.
  if (job.options.best) point_link(job.directory, kBestLink, name);
  job.stage("best");
  point_link(job.directory, kLatestLink, name);
  job.stage("latest");
  if (job.options.newest_run) point_newest_run(job.directory);
  remove_old(job.directory, job.options, job.state.extra);
}

fs::path run_save(const SaveJob& job) {
  check_job(job);
  return with_io_errors("save a checkpoint into " + job.directory.string(), [&] {
    make_directory(job.directory);
    if (job.part.ranks > 1) return save_as_rank(job);
    DirectoryLock lock(job.directory);
    if (lock.held()) clean_leftovers(job.directory);
    check_space(job);
    return save_alone(job);
  });
}

fs::path save(const fs::path& checkpoint_dir, const State& state, const SaveOptions& options) {
  SaveJob job;
  job.directory = checkpoint_dir;
  job.state = state;
  job.options = options;
  job.own = state.groups;
  return run_save(job);
}

}  // namespace octavo::checkpoint
