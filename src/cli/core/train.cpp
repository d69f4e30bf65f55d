#include "cli/core/core_verbs.h"
#include "config/parse.h"
#include "train/loop.h"
#include "train/persist.h"

namespace octavo::cli {

int train(CoreArgs args) {
  const config::Parsed parsed = config::parse(args, config::kTrainArguments);
  if (parsed.settings.list_checkpoints)
    return list_checkpoints(train::checkpoint_dir(parsed.settings), false);
  return train::train(parsed.settings);
}

}  // namespace octavo::cli
