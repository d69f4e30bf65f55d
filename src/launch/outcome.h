#pragma once
// What the ends of all ranks mean together: one exit code, and the rank that caused it.

#include <span>
#include <string>

namespace octavo::launch {

// How one rank ended.
struct RankEnd {
  int rank = 0;
  int order = 0;             // 0: the first that ended
  int code = 0;              // its exit code, when no signal ended it
  int signal = 0;            // that ended it; 0: none
  bool killed = false;       // by us, after the grace
  bool was_stopped = false;  // it stood still (SIGSTOP) when we killed it
  std::string last_line;     // that it printed
};

// In the order of what is believed to be the cause: peers of a rank that is gone leave with 3.
enum class Cause { kNone, kReported, kSilent, kItself };

struct Outcome {
  int code = 0;
  Cause cause = Cause::kNone;
  bool curable = false;  // a restart may help
  int rank = -1;
  std::string what;  // "rank 2 was killed by signal 9 (Killed); its last line: …"
};

// `stop_signal`: the one that was passed on to the ranks, 0 for none.
Outcome outcome_of(std::span<const RankEnd> ends, int stop_signal);

// Of several nodes: the worst cause, the first node's among equals.
const Outcome& worst(std::span<const Outcome> outcomes);

// Why a rank is gone, for its peers: "killed by signal 9 (Killed)", "exit code 4".
std::string death_text(const RankEnd& end);
bool has_failed(const RankEnd& end);  // neither done (0) nor stopped on request (75)

}  // namespace octavo::launch
