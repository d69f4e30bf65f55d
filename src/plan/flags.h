#pragma once
// Settings as flags of train.

#include <set>
#include <string>
#include <vector>

#include "config/settings.h"

namespace octavo::plan {

std::set<std::string> changed_keys(const config::Settings& before, const config::Settings& after);
// Those of `names` that train reads: {"--batch_size", "2", "--gradient_checkpointing"}.
std::vector<std::string> train_flags(const config::Settings& settings,
                                     const std::set<std::string>& names);

}  // namespace octavo::plan
