#pragma once
// receipt.json: what really ran. Written at the start and again at the end of a run.

#include "base/file.h"
#include "base/json.h"
#include "train/run.h"

namespace octavo::train {

// `sinks` is what monitor::AsyncSink says of itself.
void write_receipt(const Run& run, const fs::path& run_dir, const std::string& status,
                   const Json& sinks = {});

}  // namespace octavo::train
