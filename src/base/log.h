#pragma once
// Messages to people, on stderr. The implementation (spdlog) stays out of this header because
// torch's bundled fmt collides with Debian's.

#include <cstdint>
#include <string>
#include <string_view>

namespace octavo {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

void set_log_level(LogLevel level);
void log_debug(std::string_view message);
void log_info(std::string_view message);
// Nothing is silent: fallbacks, skips, clamps and retries are said here, and counted for the
// receipt.
void log_warn(std::string_view message);
// The same once for each message, however often a file is read.
void log_warn_once(const std::string& message);
void log_error(std::string_view message);
int64_t warning_count();

}  // namespace octavo
