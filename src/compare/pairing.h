#pragma once
// Whether two runs may be compared, and how: step by step on the same batches, only as wholes, or
// not at all.

#include <string>
#include <vector>

#include "compare/run_folder.h"

namespace octavo::compare {

struct Difference {
  std::string key, a, b;
};

struct Pairing {
  bool comparable = true;               // the losses are of the same text in the same tokens
  bool validation = true;               // and so are those of the evaluations
  bool same_batches = true;             // step n of both saw the same samples
  std::string why;                      // the first reason against any of these
  std::vector<Difference> differences;  // settings that matter to the outcome
  std::vector<std::string> remarks;
  std::vector<int64_t> steps;  // that both runs have, with a finite loss in both
};

Pairing pair_up(const RunFolder& a, const RunFolder& b);

}  // namespace octavo::compare
