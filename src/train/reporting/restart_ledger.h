#pragma once
// restarts.jsonl: when, from where and with how many ranks a run was resumed. Its other files read
// as if it never had been.

#include "base/file.h"
#include "base/json.h"
#include "train/run.h"

namespace octavo::train {

// Nothing for a run that was not resumed.
void write_restart(const fs::path& run_dir, const Resumed& resumed, int ranks);

// For the receipt: how many there were, and each at which the number of ranks changed.
Json restarts_receipt(const fs::path& run_dir);

}  // namespace octavo::train
