#include "base/log.h"
#include "base/log_file.h"
#include "cli/core/core_verbs.h"
#include "config/parse.h"
#include "launch/rank_info.h"
#include "train/loop.h"
#include "train/state/run_folders.h"
#include "train/state/switched_precision.h"

namespace octavo::cli {

int train(CoreArgs args) {
  const config::Parsed parsed = config::parse(args, config::kTrainArguments);
  if (parsed.settings.list_checkpoints)
    return list_checkpoints(train::checkpoint_dir(parsed.settings), false, parsed.settings.run_name,
                            parsed.settings.permanent_checkpoint_freq);
  const int rank = launch::rank_info_from_environment().rank;
  set_log_rank(rank);
  if (rank == 0)  // once, not by every rank
    for (const auto* lines : {&parsed.notes, &parsed.defaults})
      for (const std::string& line : *lines) log_info(line);
  config::Settings settings = parsed.settings;
  settings.resume = train::resume_of(settings, parsed.file_is_fp8);
  return train::train(std::move(settings));
}

}  // namespace octavo::cli
