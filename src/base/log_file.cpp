#include "base/log_file.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <mutex>

#include "base/error.h"
#include "base/host.h"
#include "base/json.h"
#include "base/secrets.h"

namespace octavo {
namespace {

constexpr size_t kMostEarlyLines = 1000;  // kept until there is a file

struct LogState {
  std::mutex mutex;
  std::atomic<int> rank{0}, launcher{-1};
  std::atomic<int64_t> step{0};
  std::atomic<bool> json{false};
  std::filesystem::path path;
  std::FILE* file = nullptr;
  uint64_t bytes = 0;
  std::deque<std::string> early;
};

LogState& log_state() {
  static LogState* const only = new LogState;  // messages come until the very end
  return *only;
}

const char* level_name(LogLevel level) {
  constexpr const char* kNames[] = {"debug", "info", "warning", "error"};
  return kNames[static_cast<int>(level)];
}

// With the lock held, as the next two.
void give_up(LogState& log, const char* what) {
  std::fprintf(stderr, "warning: the log file %s cannot be %s (%s); messages are here alone\n",
               log.path.c_str(), what, std::strerror(errno));
  if (log.file != nullptr) std::fclose(log.file);
  log.file = nullptr;
}

void open_file(LogState& log) {
  log.file = std::fopen(log.path.c_str(), "ae");
  if (log.file == nullptr) return give_up(log, "opened");
  std::error_code none;
  const uintmax_t size = std::filesystem::file_size(log.path, none);
  log.bytes = none ? 0 : size;
}

void rotate(LogState& log) {
  std::fclose(log.file);
  log.file = nullptr;
  std::error_code none;  // a name that is not there yet
  const auto old = [&](int number) {
    return std::filesystem::path(str(log.path.string(), ".", number));
  };
  for (int i = kOldLogFiles - 1; i >= 1; --i) std::filesystem::rename(old(i), old(i + 1), none);
  std::filesystem::rename(log.path, old(1), none);
  open_file(log);
}

void write_line(LogState& log, const std::string& line) {
  if (log.file != nullptr && log.bytes > 0 && log.bytes + line.size() > kLogFileBytes) rotate(log);
  if (log.file == nullptr) return;
  // Flushed line by line: the last ones before a crash are the ones that are wanted.
  if (std::fputs(line.c_str(), log.file) < 0 || std::fflush(log.file) != 0)
    return give_up(log, "written");
  log.bytes += line.size();
}

}  // namespace

void set_log_rank(int rank) {
  log_state().rank = rank;
}
void set_log_step(int64_t step) {
  log_state().step = step;
}
void set_log_launcher(int node) {
  log_state().launcher = node;
}
void set_log_json(bool json) {
  log_state().json = json;
}

void open_log_file(const std::filesystem::path& path) {
  LogState& log = log_state();
  const std::lock_guard lock(log.mutex);
  if (log.file != nullptr) std::fclose(log.file);
  log.path = path;
  std::error_code none;  // opening the file says what is wrong
  std::filesystem::create_directories(path.parent_path(), none);
  open_file(log);
  while (!log.early.empty()) {
    write_line(log, log.early.front());
    if (log.file == nullptr) return;  // kept for the next file: a full disk may be cured by then
    log.early.pop_front();
  }
}

void close_log_file() {
  LogState& log = log_state();
  const std::lock_guard lock(log.mutex);
  if (log.file != nullptr) std::fclose(log.file);
  log.file = nullptr;
  log.path.clear();
}

void keep_in_log_file(LogLevel level, std::string_view message) {
  log_detail::keep(log_detail::line_of(level, without_secrets(message)));
}

namespace log_detail {

std::string line_of(LogLevel level, const std::string& message) {
  static const std::string host = host_name();
  const LogState& log = log_state();
  Json line = {{"time", utc_now(6)}, {"host", host}};
  if (log.launcher >= 0)
    line["launcher"] = int{log.launcher};
  else
    line.update({{"rank", int{log.rank}}, {"step", int64_t{log.step}}});
  line.update({{"level", level_name(level)}, {"message", message}});
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void keep(const std::string& line) {
  LogState& log = log_state();
  const std::lock_guard lock(log.mutex);
  if (log.file != nullptr) return write_line(log, line);
  // Without a path there may be a file later; with one it was given up.
  if (!log.path.empty()) return;
  log.early.push_back(line);
  if (log.early.size() > kMostEarlyLines) log.early.pop_front();
}

bool is_json() {
  return log_state().json;
}

}  // namespace log_detail
}  // namespace octavo
