#pragma once
// Weights & Biases: an offline run, in the file that wandb itself keeps one in, and beside it
// wandb's own uploader when there is a key.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "monitor/sinks.h"

namespace octavo::monitor {

struct WandbOptions {
  fs::path folder;  // runs/<run>/wandb; the offline run becomes a folder in it
  std::string project, run_name;
  std::vector<std::pair<std::string, std::string>> config;  // key, value as JSON
  int64_t last_step = 0;  // after a resume: the run of the folder continues, in a file of its own
  bool may_upload = true;
};

std::unique_ptr<Sink> make_wandb_sink(const WandbOptions& options);

// One record in W&B's file, which is LevelDB's log: pieces that do not cross a block of 32 KiB. At
// `offset` 0 the file's header comes first.
std::string wandb_log_bytes(std::string_view record, uint64_t offset);

}  // namespace octavo::monitor
