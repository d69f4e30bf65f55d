#pragma once
// What the ends of all ranks mean together: one exit code, and the rank that caused it.

#include <span>
#include <string>

#include "launch/rank_ends.h"

namespace octavo::launch {

// In the order of what is believed to be the cause: peers of a rank that is gone leave with 3 and
// mostly say so (kReported); one that left with 3 and said nothing more may be such a peer, or not
// (kUnexplained).
enum class Cause { kNone, kReported, kUnexplained, kSilent, kItself };

struct Outcome {
  int code = 0;
  Cause cause = Cause::kNone;
  EndKind kind = EndKind::kDone;
  bool curable = false;         // a restart may help
  bool stopped = false;         // a rank ended as it was asked to, whatever the others did
  bool has_run_folder = false;  // a rank of this node wrote into it
  int rank = -1;
  std::string what;  // "rank 2 was killed by signal 9 (Killed); its last line: …"
};

// `stop_signal`: the one that was passed on to the ranks, 0 for none.
Outcome outcome_of(std::span<const RankEnd> ends, int stop_signal);

// Of several nodes: the worst cause, the first node's among equals.
const Outcome& worst(std::span<const Outcome> outcomes);
// The worst; curable only when each of them is. Where one node's ranks stopped as they were asked
// to, others that only missed them do not make a failure of it.
Outcome together(std::span<const Outcome> outcomes);

// Why a rank is gone, for its peers: "killed by signal 9 (Killed)", "exit code 4".
std::string death_text(const RankEnd& end);
bool has_failed(const RankEnd& end);  // neither done (0) nor stopped on request (75)

}  // namespace octavo::launch
