#pragma once
// A run writes into two folders of its own, runs_dir/<run_name> and checkpoint_dir/<run_name>, and
// into nothing else. What another run left there is never touched, unless overwrite says so.

#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "config/settings.h"
#include "dist/world.h"

namespace octavo::train {

// Below it every run has a folder of its own: checkpoint_dir, or checkpoints or checkpoints_fp8.
std::string checkpoint_dir(const config::Settings& settings);
fs::path run_folder(const config::Settings& settings);         // runs_dir/<run_name>
fs::path checkpoint_folder(const config::Settings& settings);  // checkpoint_dir/<run_name>

// Before anything is built: settles settings.run_name (the checkpoint's when the run continues,
// else a new one when there is none), refuses folders that hold another run, with what to type, and
// tries the others (train/guards/output_check.h). The first rank looks, and all come to the same.
struct RunFolders {
  std::string run_id;          // of the run that resumes, or a new one
  bool resumes = false;        // from a checkpoint of its own
  std::shared_ptr<void> lock;  // of its folder, on the first rank: no other process trains there
  std::vector<fs::path> made;  // for it, the innermost first: gone again when it is not begun
};
RunFolders claim_folders(config::Settings& settings, dist::World& world);

// Right before the run writes for the first time, on the first rank: with overwrite, what the run
// of this name left is removed.
void remove_overwritten(const config::Settings& settings, const RunFolders& claim);

}  // namespace octavo::train
