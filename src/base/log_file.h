#pragma once
// A file of this process's messages, one JSON object a line with time, host, rank and step: what an
// incident of days is understood from. The terminal has the same messages for people (log.h), or,
// on request, the same lines.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/log.h"

namespace octavo {

// Who speaks, and in which step. Until they are set: rank 0, step 0.
void set_log_rank(int rank);
void set_log_step(int64_t step);
// No rank: the launcher of this node.
void set_log_launcher(int node);
// Lines of JSON on stderr too.
void set_log_json(bool json);

// From here on every message from info on is appended to the file; what was said before comes
// first. At 16 MiB it is renamed to <path>.1, and older ones to .2 and .3. A file that cannot be
// written is said once, and the run continues without it.
void open_log_file(const std::filesystem::path& path);
// What is said afterwards is kept for the next file.
void close_log_file();
// Into the file alone: for what is said in another way.
void keep_in_log_file(LogLevel level, std::string_view message);

constexpr uint64_t kLogFileBytes = uint64_t{16} << 20;
constexpr int kOldLogFiles = 3;

// For log.cpp, and for the line that says why a process ends (cli/main.cpp).
namespace log_detail {
std::string line_of(LogLevel level, const std::string& message);
void keep(const std::string& line);
bool is_json();
}  // namespace log_detail

}  // namespace octavo
