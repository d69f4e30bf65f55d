#pragma once
// What went wrong with the numbers of a run, as its incidents.jsonl tells it.

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace octavo::train {

enum class IncidentKind : uint8_t { kNotFinite, kSpike, kRollback, kReplicasDiffer };
enum class Cause : uint8_t { kUnknown, kHardware, kFp8, kModelOrData };

struct Incident {
  IncidentKind kind = IncidentKind::kNotFinite;
  int64_t step = 0;
  double loss = 0;
  std::string what;  // "the loss of step 7 is nan"
  // Of what is not finite, when it was looked into (train/guards/replay.h).
  std::string place;       // where it was first seen: a layer and a pass, a weight
  std::vector<int> ranks;  // that saw it; empty: none by itself, only their sum
  Cause cause = Cause::kUnknown;
  std::string evidence;                       // what the cause was told by
  bool weights_are_bad = false;               // no step can be applied any more
  uint64_t first_sample = 0, end_sample = 0;  // of the data's order, on all ranks
  std::string action;                         // "skipped", "run ended", "rolled back to …"

  std::string text() const;  // what, where and why, in one line
  Json json() const;
};

}  // namespace octavo::train
