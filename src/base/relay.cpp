#include "base/relay.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/log_file.h"
#include "base/printable.h"
#include "base/text.h"

namespace octavo {
namespace {

constexpr size_t kLongestLine = 64 * 1024;  // a longer one is cut into several
constexpr size_t kShownLine = 400;          // of the last line, in messages
constexpr size_t kMostPending = 1 << 20;    // bytes that wait for a slow reader
// A pipe that poll() calls writable takes this much without waiting (PIPE_BUF).
constexpr size_t kAtOnce = 4096;
constexpr std::chrono::milliseconds kLastPatience{1000};

bool write_fully(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// For people, who do not read JSON (log_format) inside a message.
std::string shown_line(std::string_view line) {
  try {
    if (line.starts_with('{')) {
      const Json json = parse_json(line, "a line", {.max_bytes = kLongestLine, .max_depth = 4});
      return printable(json_string(json, "message", "a line"), kShownLine, true);
    }
  } catch (const Error&) {  // no log line
  }
  return std::string(line.substr(0, kShownLine));
}

// main's line for an error, in text or in JSON (cli/main.cpp).
bool is_last_words(std::string_view line, std::string_view message) {
  if (line.starts_with("octavo: [")) return true;
  return line.starts_with('{') && message.starts_with('[') &&
         line.find("\"level\":\"error\"") != line.npos;
}

}  // namespace

LogFile::LogFile(const fs::path& path) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor_ < 0)
    fail(ExitCode::kEnvironment, "base", "wanted to write ", path.string(),
         ", found: ", std::strerror(errno), "; choose another log_dir");
}

LogFile::~LogFile() {
  ::close(descriptor_);
}

void LogFile::write(std::string_view text) {
  if (failed_ || write_fully(descriptor_, text)) return;
  failed_ = true;  // said once: the run is worth more than its log
  log_warn(str("cannot write ", path_.string(), ": ", std::strerror(errno), "; the rest is lost"));
}

bool PatientWriter::flush(int descriptor) {
  while (!pending_.empty()) {
    pollfd ready{descriptor, POLLOUT, 0};
    if (::poll(&ready, 1, 0) <= 0) return false;
    const ssize_t written =
        ::write(descriptor, pending_.data(), std::min(pending_.size(), kAtOnce));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) return false;
    if (written <= 0) {  // the reader is gone: the run is worth more than what it prints
      gone_ = true;
      dropped_ += pending_.size();
      pending_.clear();
      log_warn_once(str("what ranks print is no longer shown: ", std::strerror(errno)));
      return true;
    }
    pending_.erase(0, static_cast<size_t>(written));
  }
  return true;
}

void PatientWriter::write(int descriptor, std::string_view text) {
  if (gone_ || pending_.size() + text.size() > kMostPending) {
    dropped_ += text.size();
  } else {
    pending_ += text;
  }
  flush(descriptor);
}

void PatientWriter::finish(int descriptor, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!flush(descriptor) && std::chrono::steady_clock::now() < deadline) {
    pollfd ready{descriptor, POLLOUT, 0};
    ::poll(&ready, 1, 50);
  }
  dropped_ += pending_.size();
  pending_.clear();
  if (dropped_ > 0 && !gone_)
    log_warn(str(dropped_, " bytes that a rank printed were not shown: the reader was too slow"));
}

Relay::Relay(int terminal, std::string prefix, std::shared_ptr<LogFile> log)
    : terminal_(terminal), prefix_(std::move(prefix)), log_(std::move(log)) {}

void Relay::feed(std::string_view bytes) {
  if (prefix_.empty() && terminal_ >= 0) writer_.write(terminal_, bytes);
  rest_ += bytes;
  size_t begin = 0;
  for (;;) {
    const size_t end = rest_.find('\n', begin);
    if (end != rest_.npos)
      take_line(std::string_view(rest_).substr(begin, end - begin));
    else if (rest_.size() - begin > kLongestLine)
      take_line(std::string_view(rest_).substr(begin, kLongestLine));
    else
      break;
    begin = end != rest_.npos ? end + 1 : begin + kLongestLine;
  }
  rest_.erase(0, begin);
}

void Relay::finish() {
  if (!rest_.empty()) take_line(rest_);
  rest_.clear();
  show_last_words();
  if (terminal_ >= 0) writer_.finish(terminal_, kLastPatience);
}

void Relay::flush() {
  if (terminal_ >= 0) writer_.write(terminal_, "");
}

void Relay::show_last_words() {
  if (terminal_ >= 0 && !last_words_.empty()) writer_.write(terminal_, last_words_);
  last_words_.clear();
}

bool Relay::leave_out_last_words() {
  return !std::exchange(last_words_, "").empty();
}

void Relay::take_line(std::string_view line) {
  if (!trim(line).empty()) last_line_ = shown_line(trim(line));
  // A line of JSON has its rank in it, and a collector reads no other.
  const bool has_rank = log_detail::is_json() && line.starts_with('{');
  const std::string whole = str(has_rank ? "" : prefix_, line, "\n");
  if (!prefix_.empty() && terminal_ >= 0) {
    show_last_words();
    if (keeps_last_words_ && is_last_words(line, last_line_))
      last_words_ = whole;
    else
      writer_.write(terminal_, whole);
  }
  if (log_ != nullptr) log_->write(str(line, "\n"));
}

}  // namespace octavo
