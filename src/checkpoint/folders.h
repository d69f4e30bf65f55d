#pragma once
// The folder side of checkpoints: names, links, the lock, leftovers of killed saves. Private to
// this module. Names in a checkpoint directory:
//   step-00000250              a checkpoint, once manifest.json is in it
//   latest, best_model         relative links to one
//   latest -> <run>/latest     in the folder above: of the run that saved last
//   .tmp-step-00000250-<pid>   being written, or replaced and about to be deleted
//   .tmp-step-00000250-<token>-<number>   being written by the ranks of a run
//   .old-step-00000250-<pid>   moved aside while its successor takes its name (no RENAME_EXCHANGE)
//   .del-step-00000250-<pid>   being deleted
//   .link-latest-<pid>         a link before it gets its name

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace octavo::checkpoint {

// Runs `body`; what std::filesystem throws (rights, a vanished disk) becomes our error.
template <typename Body>
auto with_io_errors(std::string_view action, Body&& body) {
  try {
    return body();
  } catch (const fs::filesystem_error& error) {
    fail(ExitCode::kEnvironment, "checkpoint", "cannot ", action, ": ", error.what(),
         "; check the disk and the folder's rights");
  }
}

inline constexpr const char* kLatestLink = "latest";
inline constexpr const char* kBestLink = "best_model";

struct StepFolder {
  int64_t step = 0;
  fs::path path;
};

std::string step_folder_name(int64_t step);
std::optional<int64_t> parse_step_folder(std::string_view name);

// Every step folder, oldest step first, finished or not. A folder that a killed save left aside
// (.old-) stands in for its step when that name is free.
std::vector<StepFolder> step_folders(const fs::path& directory);

// The step folder name a link points to; nothing when there is no such link or it points elsewhere.
std::optional<std::string> read_link(const fs::path& directory, const char* link);
// The run that `latest` of a folder of runs names; "" when it names none that is there.
std::string newest_run(const fs::path& root);
// The names of the folders in `root` that have checkpoints in them, sorted.
std::vector<std::string> runs_in(const fs::path& root);
void point_link(const fs::path& directory, const char* link, const std::string& target);
// `latest` of the folder above becomes a link to this run's. Other runs move it too: what goes
// wrong is a warning.
void point_newest_run(const fs::path& run_folder);

// With the folders above it that are missing, durably.
void make_directory(const fs::path& directory);

fs::path temporary_path(const fs::path& directory, std::string_view prefix, std::string_view name);

// Gives `fresh` the name `target`, durably. An existing target is exchanged in one atomic step
// where the file system can; else moved aside first, from where step_folders() still finds it.
void install_folder(const fs::path& fresh, const fs::path& target, bool allow_exchange = true);

// Out of sight in one durable step, then deleted: neither a kill nor a power cut leaves a folder
// that looks like a checkpoint.
void remove_folder(const fs::path& folder);

// What killed saves left, with a log line. The caller holds the lock, so no other save is running.
// `alive` says which names are in use all the same: ranks begin to write before the first of them
// has the lock.
void clean_leftovers(const fs::path& directory,
                     const std::function<bool(std::string_view)>& alive = {});

// One save at a time per directory; ends with the process, also by kill -9.
class DirectoryLock {
 public:
  explicit DirectoryLock(const fs::path& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;
  bool held() const { return held_; }

 private:
  int fd_ = -1;
  bool held_ = false;
};

}  // namespace octavo::checkpoint
