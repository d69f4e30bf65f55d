#include "base/log_merge.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/log_file.h"
#include "base/printable.h"

namespace octavo {
namespace {

constexpr size_t kPiece = size_t{16} << 10, kLongestLogLine = size_t{1} << 20;
constexpr size_t kMostFiles = 400'000;
constexpr std::string_view kOfRank = "rank-", kOfLauncher = "launcher-";

std::optional<LogEntry> entry_of(std::string_view line, const std::string& source) {
  try {
    const Json json = parse_json(line, source, {.max_bytes = kLongestLogLine, .max_depth = 4});
    LogEntry entry{.time = json_string(json, "time", source),
                   .host = json_string(json, "host", source),
                   .level = json_string(json, "level", source),
                   .message = json_string(json, "message", source)};
    if (json.contains("launcher")) {
      entry.launcher = std::max<int64_t>(0, json_int(json, "launcher", source));
      entry.rank = -1;
      return entry;
    }
    entry.rank = json_int(json, "rank", source);
    entry.step = json_int(json, "step", source);
    return entry;
  } catch (const Error&) {
    return std::nullopt;  // counted by the caller
  }
}

// The lines of one rank or launcher, from its oldest file to the present one. It may be writing:
// its files get higher numbers then, and are known by their inodes.
class RankLog {
 public:
  explicit RankLog(fs::path present) : present_(std::move(present)) {
    for (int number = 0; number <= kOldLogFiles; ++number) {
      struct stat found {};
      if (::stat(path_of(number).c_str(), &found) != 0) continue;
      if (std::ranges::find(files_, found.st_ino, &File::inode) == files_.end())
        files_.push_back({number, found.st_ino});
    }
    std::ranges::reverse(files_);
  }

  int files() const { return static_cast<int>(files_.size()); }

  // False: at the end. Unreadable lines are counted and left out.
  bool next(uint64_t& unreadable) {
    std::string line;
    while (take_line(line)) {
      if (line.empty()) continue;
      if (auto found = entry_of(line, present_.string())) {
        // A clock that was set back must not stop the others.
        if (found->time < entry.time) found->time = entry.time;
        entry = std::move(*found);
        return true;
      }
      ++unreadable;
    }
    return false;
  }

  LogEntry entry;

 private:
  struct File {
    int number;  // of rank-00003.jsonl.2; 0: the present one
    ino_t inode;
  };

  fs::path path_of(int number) const {
    return number == 0 ? present_ : fs::path(str(present_.string(), ".", number));
  }

  // By the name that it has now; closed: there is none left, or it cannot be read.
  Fd open(File& file) const {
    for (; file.number <= kOldLogFiles; ++file.number) {
      Fd fd(::open(path_of(file.number).c_str(), O_RDONLY | O_CLOEXEC));
      struct stat found {};
      if (fd.open() && ::fstat(fd.get(), &found) == 0 && found.st_ino == file.inode) return fd;
    }
    return Fd();
  }

  bool take_line(std::string& line) {
    for (;;) {
      const size_t end = buffer_.find('\n', at_);
      if (end != std::string::npos) {
        line.assign(buffer_, at_, end - at_);
        at_ = end + 1;
        return true;
      }
      buffer_.erase(0, at_);
      at_ = 0;
      if (buffer_.size() > kLongestLogLine)
        buffer_.clear();  // the rest of it is an unreadable line
      if (read_piece()) continue;
      if (buffer_.empty()) return false;
      line = std::exchange(buffer_, {});  // without an end: a crash
      return true;
    }
  }

  bool read_piece() {
    for (; file_ < files_.size(); ++file_, offset_ = 0) {
      const Fd fd = open(files_[file_]);
      std::string piece(kPiece, '\0');
      const ssize_t got =
          fd.open() ? ::pread(fd.get(), piece.data(), piece.size(), static_cast<off_t>(offset_))
                    : 0;
      piece.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
      if (piece.empty()) {
        if (!buffer_.empty() && file_ + 1 < files_.size()) buffer_ += '\n';
        continue;
      }
      offset_ += piece.size();
      buffer_ += piece;
      return true;
    }
    return false;
  }

  fs::path present_;
  std::vector<File> files_;
  size_t file_ = 0, at_ = 0;
  uint64_t offset_ = 0;
  std::string buffer_;
};

// "rank-00003" of each rank and launcher, from rank-00003.jsonl.3, .2, .1 and rank-00003.jsonl.
std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  std::error_code error;
  size_t seen = 0;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    const size_t dot = name.find(".jsonl");
    if (!name.starts_with(kOfRank) && !name.starts_with(kOfLauncher)) continue;
    if (dot == std::string::npos || ++seen > kMostFiles) continue;
    names.insert(name.substr(0, dot));
  }
  if (error)
    fail(ExitCode::kUsage, "logs", "wanted a folder of log files, found ", folder.string(), " (",
         error.message(), "); name a run that has logs");
  return names;
}

}  // namespace

std::string log_file_name(int rank) {
  char name[32];
  std::snprintf(name, sizeof name, "rank-%05d.jsonl", rank);
  return name;
}

std::string launcher_log_file_name(int node) {
  char name[32];
  std::snprintf(name, sizeof name, "launcher-%05d.jsonl", node);
  return name;
}

std::string text_of(const LogEntry& entry) {
  std::string time = printable(entry.time);
  if (time.size() > 23 && time[10] == 'T') time = time.substr(0, 10) + ' ' + time.substr(11, 12);
  const std::string who = entry.launcher >= 0 ? str(" launcher of node ", entry.launcher)
                                              : str(" rank ", entry.rank, " step ", entry.step);
  return str(time, ' ', printable(entry.host), who, ' ', printable(entry.level), ": ",
             printable(entry.message, kLongestLogLine, true));
}

std::vector<int64_t> ranks_with_logs(const fs::path& folder) {
  std::vector<int64_t> ranks;
  for (const std::string& name : names_in(folder)) {
    if (!name.starts_with(kOfRank)) continue;
    int64_t rank = 0;
    const char* const end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data() + kOfRank.size(), end, rank);
    if (error == std::errc() && stop == end && rank >= 0) ranks.push_back(rank);
  }
  std::ranges::sort(ranks);
  return ranks;
}

MergedLogs merge_logs(const fs::path& folder, const std::function<void(const LogEntry&)>& take) {
  MergedLogs result;
  std::vector<std::unique_ptr<RankLog>> ranks;
  for (const std::string& name : names_in(folder)) {
    auto rank = std::make_unique<RankLog>(folder / (name + ".jsonl"));
    result.files += rank->files();
    if (rank->next(result.unreadable)) ranks.push_back(std::move(rank));
  }
  const auto later = [](const RankLog* a, const RankLog* b) {
    return std::tie(a->entry.time, a->entry.rank) > std::tie(b->entry.time, b->entry.rank);
  };
  std::priority_queue<RankLog*, std::vector<RankLog*>, decltype(later)> queue(later);
  for (const auto& rank : ranks) queue.push(rank.get());
  while (!queue.empty()) {
    RankLog* const first = queue.top();
    queue.pop();
    take(first->entry);
    ++result.lines;
    if (first->next(result.unreadable)) queue.push(first);
  }
  return result;
}

}  // namespace octavo
