#include "base/host.h"

#include <unistd.h>

#include <chrono>

namespace octavo {

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown host";
}

std::string utc_text(const char* format, std::time_t seconds) {
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[64];
  return {text, std::strftime(text, sizeof text, format, &parts)};
}

std::string utc_now(int digits) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  std::string text = utc_text("%Y-%m-%dT%H:%M:%S", micros / 1'000'000);
  if (digits > 0) {
    const std::string fraction = std::to_string(1'000'000 + micros % 1'000'000).substr(1);
    text += "." + fraction.substr(0, static_cast<size_t>(digits));
  }
  return text + "Z";
}

}  // namespace octavo
