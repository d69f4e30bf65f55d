#pragma once
// Which run of a checkpoint_dir is meant, and where its checkpoints lie. Private to this module.

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/folders.h"

namespace octavo::checkpoint {

// The step folders of one run.
struct RunCheckpoints {
  fs::path folder;
  // "": all that are in the folder. Else those of this run: checkpoints of several lie in one
  // folder from before each had its own.
  std::string only;
};

// What a checkpoint is wanted for, which says what can be typed instead: `generate` and others that
// read one have no --resume.
enum class Purpose : uint8_t { kResume, kRead };

// Of the run of that name; an error when it has no checkpoint.
RunCheckpoints checkpoints_of(const fs::path& root, const std::string& run, Purpose purpose);
// Of the run that saved last. Nothing need be there.
RunCheckpoints newest_run_checkpoints(const fs::path& root);

// Oldest step first.
std::vector<StepFolder> steps_of(const RunCheckpoints& run_checkpoints);

// Of the folders below, and of checkpoints from before runs had them.
std::vector<std::string> run_names(const fs::path& root);
// "run a, run b" or "no run": what to choose from, for messages.
std::string runs_text(const fs::path& root);

// The run of a step folder, "" when its manifest cannot be read or has none.
std::string run_of(const fs::path& step_folder);

}  // namespace octavo::checkpoint
