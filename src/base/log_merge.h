#pragma once
// The log files of a run's ranks and launchers (log_file.h) as one sequence by time. Files are read
// in pieces, none stays open, and a rank has a few KB in memory: a run may have 10^4 ranks.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace octavo {

struct LogEntry {
  std::string time, host, level, message;
  int64_t rank = 0, step = 0;
  int64_t launcher = -1;  // the node of a launcher, whose rank is -1; -1: a rank speaks
};

// "2026-11-17 23:30:39.123 node3 rank 5 step 250 warning: …", for a terminal.
std::string text_of(const LogEntry& entry);

struct MergedLogs {
  uint64_t lines = 0, unreadable = 0;  // cut by a crash, say
  int files = 0;
};

// Every entry of the files in `folder`, the earliest first.
MergedLogs merge_logs(const std::filesystem::path& folder,
                      const std::function<void(const LogEntry&)>& take);

// The ranks that have a file in `folder`, in order.
std::vector<int64_t> ranks_with_logs(const std::filesystem::path& folder);

// The names of a rank's file, and of that of a node's launcher.
std::string log_file_name(int rank);
std::string launcher_log_file_name(int node);

}  // namespace octavo
