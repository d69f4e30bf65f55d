#pragma once
// HellaSwag of both runs of a pair, by `octavo eval` in a child process, row by row.

#include <string>

#include "compare/pair_results.h"

namespace octavo::compare {

// Fills `task` or `no_task` of every pair. Answers are kept in the run's folder and not asked for
// again.
void add_hellaswag(std::vector<Pair>& pairs, const std::string& file, int64_t limit);

}  // namespace octavo::compare
