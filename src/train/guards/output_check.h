#pragma once
// Every folder that a run will write to is tried before step 1, not at the first save.

#include <vector>

#include "base/file.h"
#include "config/settings.h"

namespace octavo::train {

// Makes each, writes a file into it, syncs both and removes the file. One that cannot be written to
// is an error with the key to change. Returns the folders that were not there before, the innermost
// first.
std::vector<fs::path> try_output_folders(const config::Settings& settings, int rank);

// Those that are still empty, when the run is not begun.
void remove_empty(const std::vector<fs::path>& folders);

}  // namespace octavo::train
