#pragma once
// receipt.json: what really ran. Written at the start and again at the end of a run.

#include "base/file.h"
#include "base/json.h"
#include "train/run.h"

namespace octavo::train {

// `sinks` and `flags` are what monitor::AsyncSink and monitor::RedFlags say of themselves.
void write_receipt(const Run& run, const fs::path& run_dir, const std::string& status,
                   const Json& sinks = {}, const Json& flags = {});

}  // namespace octavo::train
