#pragma once
// receipt.json: what really ran. Written at the start and again at the end of a run.

#include "base/file.h"
#include "train/run.h"

namespace octavo::train {

void write_receipt(const Run& run, const fs::path& run_dir, const std::string& status);

}  // namespace octavo::train
