#include "train/guards/same_run.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "config/key.h"

namespace octavo::train {
namespace {

// What may differ from node to node. `resume` is agreed on by itself (state/resume.cpp): launchers
// add it to a restart, and a node that is new has not got it.
constexpr auto kOfOneNode = std::to_array<std::string_view>(
    {"data_cache",      "data_cache_gb", "dataset",       "device",        "dist_interface",
     "eval_hellaswag",  "hang_timeout",  "log_format",    "log_freq",      "memory_limit_gb",
     "metrics_address", "num_threads",   "num_workers",   "offline",       "overwrite",
     "resume",          "tokenizer",     "trace",         "use_wandb",     "use_tensorboard",
     "verbose",         "board_port",    "wandb_project", "wandb_run_name"});

}  // namespace

std::string settings_of_all_ranks(const config::Settings& settings) {
  std::string text;
  for (const config::Key& key : config::keys())
    if ((key.readers & config::reader::kTrain) != 0 &&
        std::ranges::find(kOfOneNode, key.name) == kOfOneNode.end())
      text += str(key.name, ": ", key.text(settings), "\n");
  return text;
}

void check_same_data(dist::World& world, const data::TokenData& data) {
  const std::string own = data.fingerprint();
  const std::string first = world.from_first(own, "the data's fingerprint");
  if (own != first)
    fail(ExitCode::kUsage, "train", "wanted the data of the first rank on every rank (fingerprint ",
         first.substr(0, 12), "), found fingerprint ", own.substr(0, 12), " on rank ", world.rank(),
         "; give every node the same data set");
}

}  // namespace octavo::train
