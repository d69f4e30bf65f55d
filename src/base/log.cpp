#include "base/log.h"

#include <unistd.h>

#include <cstdio>
#include <mutex>
#include <set>

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>

#include "base/log_file.h"
#include "base/secrets.h"

namespace octavo {
namespace {

std::atomic<int64_t> warnings{0};

spdlog::logger& logger() {
  static const auto instance = [] {
    auto made = spdlog::stderr_color_mt("octavo");
    // On a terminal a progress bar may stand in the line.
    made->set_pattern(::isatty(STDERR_FILENO) != 0 ? "\r\033[K%^%l%$: %v" : "%^%l%$: %v");
    return made;
  }();
  return *instance;
}

constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                 spdlog::level::warn, spdlog::level::err};

void say(LogLevel level, std::string_view message) {
  const std::string text = without_secrets(message);
  const auto severity = kLevels[static_cast<int>(level)];
  const bool as_json = log_detail::is_json() && logger().should_log(severity);
  if (!log_detail::is_json()) logger().log(severity, text);
  if (level == LogLevel::kDebug && !as_json) return;
  const std::string line = log_detail::line_of(level, text);
  if (level != LogLevel::kDebug) log_detail::keep(line);
  if (as_json) std::fputs(line.c_str(), stderr);
}

}  // namespace

void set_log_level(LogLevel level) {
  logger().set_level(kLevels[static_cast<int>(level)]);
}

void log_debug(std::string_view message) {
  say(LogLevel::kDebug, message);
}
void log_info(std::string_view message) {
  say(LogLevel::kInfo, message);
}
void log_error(std::string_view message) {
  say(LogLevel::kError, message);
}

void log_warn(std::string_view message) {
  ++warnings;
  say(LogLevel::kWarn, message);
}

void log_warn_once(const std::string& message) {
  static std::mutex mutex;
  static std::set<std::string> said;
  {
    const std::lock_guard lock(mutex);
    if (!said.insert(message).second) return;
  }
  log_warn(message);
}

int64_t warning_count() {
  return warnings;
}

}  // namespace octavo
