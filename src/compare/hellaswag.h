#pragma once
// HellaSwag of both runs of a pair, by `octavo eval` in a child process, row by row.

#include "base/file.h"
#include "compare/pair_results.h"

namespace octavo::compare {

// `file`: the rows (data::benchmark_file). Fills `task` or `no_task` of every pair. Answers are
// kept in the run's folder and not asked for again.
void add_hellaswag(std::vector<Pair>& pairs, const fs::path& file, int64_t limit);

}  // namespace octavo::compare
