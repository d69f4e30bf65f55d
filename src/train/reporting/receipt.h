#pragma once
// receipt.json: what really ran. Written at the start and the end of a run. As long as a resumed
// run has made no step, what ran is what the receipt before says; behind the first it is written
// again.

#include "base/file.h"
#include "base/json.h"
#include "train/run.h"

namespace octavo::train {

// `sinks` and `flags` are what monitor::AsyncSink and monitor::RedFlags say of themselves. `steps`:
// made since this start.
void write_receipt(const Run& run, const fs::path& run_dir, const std::string& status,
                   int64_t steps, const Json& sinks = {}, const Json& flags = {});

}  // namespace octavo::train
