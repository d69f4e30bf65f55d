#include "checkpoint/download.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/signals.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folders.h"
#include "checkpoint/manifest.h"
#include "checkpoint/stream_file.h"
#include "checkpoint/upload.h"
#include "checkpoint/uploader.h"
#include "object_store/address.h"

namespace octavo::checkpoint {
namespace {

constexpr uint64_t kDownloadChunk = uint64_t{8} << 20;
constexpr int64_t kDownloadAttempts = 4;  // of one object

struct RemoteManifest {
  std::string address;  // of the checkpoint
  std::string text;
  Manifest manifest;
};

RemoteManifest read_remote(object_store::ObjectStore& store, const std::string& address) {
  const std::string seal = object_store::join(address, kManifestName);
  if (store.list(seal).empty())
    fail(ExitCode::kDamaged, "checkpoint", "wanted a checkpoint at ", address,
         ", found no manifest.json in it: an upload that was not finished, or no checkpoint; give "
         "the address of the run to take its newest whole one");
  RemoteManifest remote{address, store.get(seal, JsonLimits{}.max_bytes), {}};
  remote.manifest = parse_manifest(remote.text, seal);
  if (object_store::leaf_of(address) != step_folder_name(remote.manifest.step))
    fail(ExitCode::kDamaged, "checkpoint", seal,
         ": wanted the manifest of this step, found that of ",
         step_folder_name(remote.manifest.step));
  return remote;
}

// The folder below checkpoint_dir: the run's name, which comes from a server.
std::string local_run_name(const RemoteManifest& remote) {
  const std::string run = text_of(remote.manifest.extra, kRunName);
  const bool plain =
      !run.empty() && run.size() <= 200 && run.front() != '.' &&
      run.find('/') == std::string::npos && run.find('\\') == std::string::npos &&
      std::ranges::all_of(run, [](unsigned char c) { return c >= 0x20 && c != 0x7f; });
  if (!plain)
    fail(ExitCode::kDamaged, "checkpoint", remote.address, ": wanted the plain name of a run in ",
         kManifestName, ", found ", quote_name(run));
  return run;
}

void get_file(object_store::ObjectStore& store, const std::string& address, const fs::path& path,
              uint64_t size, const std::string& hash, Progress& progress, double& done) {
  const double before = done;
  for (int64_t failed = 0;;) try {
      done = before;
      const auto reader = store.open(address);
      if (reader->bytes() != size)
        fail(ExitCode::kDamaged, "checkpoint", address, ": wanted ", size, " bytes, found ",
             reader->bytes());
      StreamFile file(path);
      for (uint64_t at = 0; at < size; at += kDownloadChunk) {
        if (stop_requested())
          fail(ExitCode::kStopped, "checkpoint", "download stopped by ", stop_reason(),
               "; give the same command again");
        const uint64_t bytes = std::min(kDownloadChunk, size - at);
        file.write(reader->read(at, bytes));
        progress.set((done += static_cast<double>(bytes)) / 1e6);
      }
      if (file.close() != hash)
        fail(ExitCode::kDamaged, "checkpoint", address, " is damaged: its content is not what ",
             kManifestName, " says");
      return;
    } catch (const Error& error) {
      if (error.code() != ExitCode::kEnvironment || ++failed >= kDownloadAttempts) throw;
      const double wait = upload_wait(failed, 0.5);
      log_warn(str("checkpoint: ", error.what(), " — tried again in ", format_duration(wait)));
      std::this_thread::sleep_for(std::chrono::duration<double>(wait));
    }
}

void get_files(object_store::ObjectStore& store, const RemoteManifest& remote,
               const fs::path& folder) {
  double total = 0, done = 0;
  const std::vector<PartEntry> files = all_files(remote.manifest);
  for (const PartEntry& file : files) total += static_cast<double>(file.size);
  if (const double room = static_cast<double>(fs::space(folder).available); total > room)
    fail(ExitCode::kEnvironment, "checkpoint", "wanted ", format_bytes(total), " free in ",
         folder.parent_path().string(), " for ", remote.address, ", found ", format_bytes(room),
         "; free space or set another checkpoint_dir");
  Progress progress("download", total / 1e6, "MB");
  for (const PartEntry& file : files)
    get_file(store, object_store::join(remote.address, file.name), join_inside(folder, file.name),
             file.size, file.hash, progress, done);
  progress.finish();
}

// Whether the same checkpoint is here, whole. Another one of its name is an error.
bool is_here(const RemoteManifest& remote, const fs::path& target) {
  std::error_code none;
  if (!fs::exists(fs::symlink_status(target, none))) return false;
  if (fs::is_regular_file(target / kManifestName, none) &&
      read_file(target / kManifestName, JsonLimits{}.max_bytes) == remote.text) {
    if (verify(target).empty()) return true;
    log_warn(str("checkpoint: ", target.string(), " is damaged; it is downloaded again"));
    return false;
  }
  fail(ExitCode::kUsage, "checkpoint", "wanted ", target.string(), " for ", remote.address,
       ", found another checkpoint there; move it away, set another checkpoint_dir, or resume from "
       "it with --resume ",
       target.string());
}

fs::path fetch(object_store::ObjectStore& store, const RemoteManifest& remote,
               const fs::path& checkpoint_dir) {
  const fs::path directory = checkpoint_dir / local_run_name(remote);
  const std::string name = step_folder_name(remote.manifest.step);
  const fs::path target = directory / name;
  return with_io_errors("download a checkpoint into " + directory.string(), [&] {
    if (is_here(remote, target)) {
      log_info(str("checkpoint: ", target.string(), " is ", remote.address, " already"));
      return target;
    }
    make_directory(directory);
    const DirectoryLock lock(directory);
    const fs::path temporary = temporary_path(directory, ".tmp-", name);
    fs::remove_all(temporary);
    fs::create_directory(temporary);
    try {
      const auto begin = std::chrono::steady_clock::now();
      get_files(store, remote, temporary);
      write_file_atomic(temporary / kManifestName, remote.text);
      install_folder(temporary, target);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      log_info(str("checkpoint: ", remote.address, " is downloaded to ", target.string(), " in ",
                   format_duration(took.count()), ", every file as its manifest says"));
    } catch (...) {
      std::error_code ignored;  // the first failure is the one to tell
      fs::remove_all(temporary, ignored);
      throw;
    }
    // Where there is a link it names what the run saved last here.
    if (!read_link(directory, kLatestLink)) point_link(directory, kLatestLink, name);
    return target;
  });
}

// The manifests of a run, saved last first.
std::vector<RemoteManifest> newest_first(object_store::ObjectStore& store,
                                         const std::string& address) {
  const std::vector<RemoteStep> steps = remote_steps(store, address);
  std::vector<RemoteManifest> found;
  for (const RemoteStep& step : steps) {
    if (!step.has_manifest) {
      log_warn(str("checkpoint: ", step.address,
                   " has no manifest.json: an upload that was not finished; it is passed over"));
      continue;
    }
    try {
      found.push_back(read_remote(store, step.address));
    } catch (const Error& error) {
      if (error.code() != ExitCode::kDamaged) throw;
      log_warn(str("CHECKPOINT NOT USABLE: ", error.what(), " — it is passed over"));
    }
  }
  if (steps.empty())
    fail(ExitCode::kUsage, "checkpoint", "wanted checkpoints at ", address,
         ", found none; give s3://bucket/prefix/RUN as checkpoint_upload and run_name of the run "
         "have it, or …/RUN/step-00000250");
  std::ranges::sort(found, [](const RemoteManifest& a, const RemoteManifest& b) {
    return std::tie(a.manifest.created, a.manifest.step) >
           std::tie(b.manifest.created, b.manifest.step);
  });
  return found;
}

}  // namespace

fs::path download(object_store::ObjectStore& store, const std::string& address,
                  const fs::path& checkpoint_dir) {
  const std::string whole = "s3://" + object_store::path_of(address);
  if (parse_step_folder(object_store::leaf_of(whole)))
    return fetch(store, read_remote(store, whole), checkpoint_dir);
  for (const RemoteManifest& remote : newest_first(store, whole)) try {
      return fetch(store, remote, checkpoint_dir);
    } catch (const Error& error) {
      if (error.code() != ExitCode::kDamaged) throw;
      log_warn(str("CHECKPOINT NOT USABLE: ", error.what(), " — falling back to an older one"));
    }
  fail(ExitCode::kDamaged, "checkpoint", "wanted a whole checkpoint at ", whole,
       ", found only damaged or unfinished ones; the lines above name them");
}

}  // namespace octavo::checkpoint
