#include "base/relay.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace octavo {
namespace {

constexpr size_t kLongestLine = 64 * 1024;  // a longer one is cut into several
constexpr size_t kShownLine = 400;          // of the last line, in messages

bool write_fully(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
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

Relay::Relay(int terminal, std::string prefix, std::shared_ptr<LogFile> log)
    : terminal_(terminal), prefix_(std::move(prefix)), log_(std::move(log)) {}

void Relay::feed(std::string_view bytes) {
  if (prefix_.empty() && terminal_ >= 0) write_fully(terminal_, bytes);
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
}

void Relay::take_line(std::string_view line) {
  if (!trim(line).empty()) last_line_ = trim(line).substr(0, kShownLine);
  const std::string whole = str(prefix_, line, "\n");
  if (!prefix_.empty() && terminal_ >= 0) write_fully(terminal_, whole);
  if (log_ != nullptr) log_->write(std::string_view(whole).substr(prefix_.size()));
}

}  // namespace octavo
