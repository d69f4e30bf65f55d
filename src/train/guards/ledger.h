#pragma once
// Ledgers of a run: files of JSON lines that are only ever appended to.

#include "base/file.h"
#include "base/json.h"

namespace octavo::train {

// A line that cannot be written is a warning: a full disk is no reason to stop training.
void append_to_ledger(const fs::path& ledger, const Json& line);

}  // namespace octavo::train
