#pragma once
// What went wrong with the numbers of a run, as its incidents.jsonl tells it.

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace octavo::train {

struct Incident {
  std::string kind;  // "not finite", "spike", "rollback", "replicas differ"
  int64_t step = 0;
  double loss = 0;
  std::string what;  // "the loss of step 7 is nan"
  // Of what is not finite, when it was looked into (train/replay.h).
  std::string place;       // where it was first seen: a layer and a pass, a weight
  std::vector<int> ranks;  // that saw it; empty: none by itself, only their sum
  std::string cause;       // "hardware", "fp8", "model or data"; "": not looked into
  std::string evidence;    // what the cause was told by
  uint64_t first_sample = 0, end_sample = 0;  // of the data's order, on all ranks
  std::string action;                         // "skipped", "run ended", "rolled back to …"

  std::string text() const;  // what, where and why, in one line
  Json json() const;
};

}  // namespace octavo::train
