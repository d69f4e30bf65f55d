#pragma once
// Every way in which a rank or a node can end, one row each: who is at fault, whether a restart may
// help, and what is tried. Nothing else decides what is restarted, here or by a scheduler.

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/failure.h"

namespace octavo::launch {

// How one rank ended.
struct RankEnd {
  int rank = 0;
  int order = 0;                        // 0: the first that ended
  int code = 0;                         // its exit code, when no signal ended it
  int signal = 0;                       // that ended it; 0: none
  bool killed = false;                  // by us, after the grace
  bool was_stopped = false;             // it stood still (SIGSTOP) when we killed it
  double silent_seconds = 0;            // without a sign of life before that; 0: it gave them
  bool unkillable = false;              // it was still there long after SIGKILL
  Failure failure = Failure::kUnknown;  // what it said about itself before it left
  int hanging = -1;                     // the rank that hangs, when it left because of another
  std::string last_line;                // that it printed
};

enum class EndKind {
  // exit codes
  kDone,
  kStopped,
  kBug,
  kUsage,
  kGuard,
  kDamaged,
  kStoppedTwice,
  kNotStarted,
  kOtherCode,
  // exit code 3, by what the rank said about itself
  kEnvironment,
  kHostMemory,
  kDeviceMemory,
  kDeviceFault,
  kNetwork,
  kPeerLost,
  kStorage,
  kStorageFull,
  kStorageRefused,
  kHang,
  // signals
  kKilled,
  kStopSignal,
  kSegmentationFault,
  kBusError,
  kAborted,
  kArithmetic,
  kIllegalInstruction,
  kBrokenPipe,
  kLimit,
  kOtherSignal,
  // what the launcher saw
  kEndedByUs,
  kStoodStill,
  kUnkillable,
  kLostNode,
  kLostFirstNode,
};
inline constexpr int kEndKinds = static_cast<int>(EndKind::kLostFirstNode) + 1;

enum class Blame {
  kNobody,
  kUser,
  kData,
  kTraining,
  kProgram,
  kMachine,
  kStorage,
  kNetwork,
  kPeer
};
std::string_view name_of(Blame blame);

struct EndRow {
  EndKind kind;
  std::string_view name;
  Blame at_fault;
  bool curable;                     // a restart may help
  std::chrono::seconds first_wait;  // before the first restart in a row
  std::string_view tried;           // in words, for people
};

std::span<const EndRow> end_table();  // in the order of EndKind
const EndRow& row_of(EndKind kind);
EndKind kind_of(const RankEnd& end);

// For schedulers, which know a process by its exit code alone (128 + a signal): those after which a
// restart may help, in order. 3 is one: what the rank said about itself is not known there.
std::vector<int> curable_codes();

}  // namespace octavo::launch
