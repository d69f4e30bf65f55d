#include "base/log.h"

#include <unistd.h>

#include <mutex>
#include <set>

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>

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

}  // namespace

void set_log_level(LogLevel level) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                   spdlog::level::warn, spdlog::level::err};
  logger().set_level(kLevels[static_cast<int>(level)]);
}

void log_debug(std::string_view message) {
  logger().debug(without_secrets(message));
}
void log_info(std::string_view message) {
  logger().info(without_secrets(message));
}
void log_error(std::string_view message) {
  logger().error(without_secrets(message));
}

void log_warn(std::string_view message) {
  ++warnings;
  logger().warn(without_secrets(message));
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
