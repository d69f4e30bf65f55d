#pragma once
// restarts.jsonl: when, why, from where and with how many ranks a run was resumed or started again.
// Its other files read as if it never had been.

#include <string>

#include "base/file.h"
#include "base/json.h"
#include "train/run.h"

namespace octavo::train {

// `cause`: of the launcher that started the ranks again after a failure ("killed: rank 1 …"), else
// "". Nothing for a first start.
void write_restart(const fs::path& run_dir, const Resumed& resumed, int ranks,
                   const std::string& cause);
std::string restart_cause();  // of this start

// For the receipt: how many there were, how many of them resumed from a checkpoint, how many came
// after a failure, of which kinds, and each at which the number of ranks changed.
Json restarts_receipt(const fs::path& run_dir);

}  // namespace octavo::train
