#include "launch/rank_ends.h"

#include <csignal>

#include "base/error.h"

namespace octavo::launch {
namespace {

using std::chrono::seconds;
using K = EndKind;
using B = Blame;

constexpr std::string_view kAgain = "all ranks are started again from the newest checkpoint";
constexpr std::string_view kLater = "the same after a wait: outages last";
constexpr std::string_view kNothing = "nothing: it would come again";
constexpr std::string_view kInnocent = "nothing for itself: it follows the rank at fault";

constexpr EndRow kRows[] = {
    {K::kDone, "done", B::kNobody, false, seconds(0), "nothing"},
    {K::kStopped, "stopped", B::kNobody, false, seconds(0), "nothing: it was asked to"},
    {K::kBug, "bug", B::kProgram, false, seconds(0), kNothing},
    {K::kUsage, "usage", B::kUser, false, seconds(0), kNothing},
    {K::kGuard, "guard", B::kTraining, false, seconds(0), "nothing: a person must look at it"},
    {K::kDamaged, "damaged", B::kData, false, seconds(0), kNothing},
    {K::kStoppedTwice, "stopped_twice", B::kUser, false, seconds(0), "nothing: it was asked to"},
    {K::kNotStarted, "not_started", B::kUser, false, seconds(0), kNothing},
    {K::kOtherCode, "other_code", B::kProgram, false, seconds(0), kNothing},
    {K::kEnvironment, "environment", B::kMachine, true, seconds(0), kAgain},
    {K::kHostMemory, "host_memory", B::kMachine, true, seconds(5), kLater},
    {K::kDeviceMemory, "device_memory", B::kMachine, true, seconds(0),
     "the same, with half the micro-batch and the same global batch (auto_batch_size)"},
    {K::kDeviceFault, "device_fault", B::kMachine, true, seconds(0), kAgain},
    {K::kNetwork, "network", B::kNetwork, true, seconds(5), kLater},
    {K::kPeerLost, "peer_lost", B::kPeer, true, seconds(0), kInnocent},
    {K::kStorage, "storage", B::kStorage, true, seconds(15), kLater},
    {K::kStorageFull, "storage_full", B::kStorage, true, seconds(30), kLater},
    {K::kStorageRefused, "storage_refused", B::kUser, false, seconds(0), kNothing},
    {K::kHang, "hang", B::kMachine, true, seconds(0), kAgain},
    {K::kKilled, "killed", B::kMachine, true, seconds(0), kAgain},
    {K::kStopSignal, "stop_signal", B::kMachine, true, seconds(0), kAgain},
    {K::kSegmentationFault, "segmentation_fault", B::kProgram, true, seconds(0), kAgain},
    {K::kBusError, "bus_error", B::kStorage, true, seconds(15), kLater},
    {K::kAborted, "aborted", B::kProgram, true, seconds(0), kAgain},
    {K::kArithmetic, "arithmetic", B::kProgram, false, seconds(0), kNothing},
    {K::kIllegalInstruction, "illegal_instruction", B::kMachine, false, seconds(0), kNothing},
    {K::kBrokenPipe, "broken_pipe", B::kMachine, true, seconds(0), kAgain},
    {K::kLimit, "limit", B::kUser, false, seconds(0),
     "nothing: a limit (ulimit, seccomp) ended it"},
    {K::kOtherSignal, "other_signal", B::kMachine, true, seconds(0), kAgain},
    {K::kEndedByUs, "ended_by_launcher", B::kPeer, true, seconds(0), kInnocent},
    {K::kStoodStill, "stood_still", B::kMachine, true, seconds(0), kAgain},
    {K::kUnkillable, "unkillable", B::kMachine, false, seconds(0),
     "nothing: it still holds its GPU or its files; restart the node"},
    {K::kLostNode, "lost_node", B::kMachine, true, seconds(5),
     "all ranks are started again and wait for the node's launcher to come back"},
    {K::kLostFirstNode, "lost_first_node", B::kMachine, true, seconds(5),
     "the other launchers wait for node 0 to come back"},
};

constexpr bool in_order() {
  int at = 0;
  for (const EndRow& row : kRows)
    if (static_cast<int>(row.kind) != at++) return false;
  return at == kEndKinds;
}
static_assert(in_order());

EndKind kind_of_code(const RankEnd& end) {
  switch (end.code) {
    case static_cast<int>(ExitCode::kOk):
      return K::kDone;
    case static_cast<int>(ExitCode::kStopped):
      return K::kStopped;
    case 1:
      return K::kBug;
    case static_cast<int>(ExitCode::kUsage):
      return K::kUsage;
    case static_cast<int>(ExitCode::kGuard):
      return K::kGuard;
    case static_cast<int>(ExitCode::kDamaged):
      return K::kDamaged;
    case 126:
    case 127:
      return K::kNotStarted;
    case 128 + SIGINT:
      return K::kStoppedTwice;
    case static_cast<int>(ExitCode::kEnvironment):
      break;
    default:
      return K::kOtherCode;
  }
  switch (end.failure) {
    case Failure::kUnknown:
      return K::kEnvironment;
    case Failure::kHostMemory:
      return K::kHostMemory;
    case Failure::kDeviceMemory:
      return K::kDeviceMemory;
    case Failure::kDeviceFault:
      return K::kDeviceFault;
    case Failure::kNetwork:
      return K::kNetwork;
    case Failure::kPeerLost:
      return K::kPeerLost;
    case Failure::kStorage:
      return K::kStorage;
    case Failure::kStorageFull:
      return K::kStorageFull;
    case Failure::kStorageRefused:
      return K::kStorageRefused;
    case Failure::kHang:
      return K::kHang;
  }
  return K::kEnvironment;
}

EndKind kind_of_signal(int signal) {
  switch (signal) {
    case SIGKILL:
      return K::kKilled;
    case SIGTERM:
    case SIGINT:
    case SIGUSR1:
    case SIGHUP:
      return K::kStopSignal;
    case SIGSEGV:
      return K::kSegmentationFault;
    case SIGBUS:
      return K::kBusError;
    case SIGABRT:
      return K::kAborted;
    case SIGFPE:
      return K::kArithmetic;
    case SIGILL:
      return K::kIllegalInstruction;
    case SIGPIPE:
      return K::kBrokenPipe;
    case SIGXCPU:
    case SIGXFSZ:
    case SIGSYS:
      return K::kLimit;
    default:
      return K::kOtherSignal;
  }
}

}  // namespace

std::string_view name_of(Blame blame) {
  constexpr std::string_view kNames[] = {"nobody",       "the user",    "the data",
                                         "the training", "the program", "the machine",
                                         "the storage",  "the network", "another rank"};
  return kNames[static_cast<int>(blame)];
}

std::span<const EndRow> end_table() {
  return kRows;
}

const EndRow& row_of(EndKind kind) {
  return kRows[static_cast<int>(kind)];
}

EndKind kind_of(const RankEnd& end) {
  if (end.unkillable) return K::kUnkillable;
  if (end.was_stopped || (end.killed && end.silent_seconds > 0)) return K::kStoodStill;
  if (end.killed) return K::kEndedByUs;
  return end.signal != 0 ? kind_of_signal(end.signal) : kind_of_code(end);
}

std::vector<int> curable_codes() {
  constexpr int kSignals = 64;
  std::vector<int> codes;
  for (int code = 1; code <= 128 + kSignals; ++code) {
    EndKind kind = kind_of({.code = code});
    if (kind == K::kOtherCode && code > 128) kind = kind_of({.signal = code - 128});
    if (row_of(kind).curable) codes.push_back(code);
  }
  return codes;
}

}  // namespace octavo::launch
