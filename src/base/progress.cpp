#include "base/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace octavo {
namespace {

constexpr int kBarWidth = 28;
// A bar is redrawn ten times a second; a log file gets a line every ten seconds.
constexpr std::chrono::milliseconds kTerminalPeriod{100}, kPlainPeriod{10000};

// From here on "%.1f" would print 1000.0.
constexpr double kNextUnit = 999.95;

std::string print(const char* format, double value, const char* suffix = "") {
  char text[64];
  std::snprintf(text, sizeof text, format, value, suffix);
  return text;
}

}  // namespace

bool Progress::on_terminal() {
  return ::isatty(STDERR_FILENO) != 0;
}

Progress::Progress(std::string label, double total, std::string unit)
    : label_(std::move(label)),
      unit_(std::move(unit)),
      total_(total),
      start_(std::chrono::steady_clock::now()),
      last_draw_(start_) {
  window_.add(0, 0);
}

Progress::~Progress() {
  if (!finished_) clear();
}

void Progress::set(double done, std::string_view note) {
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - start_).count();
  window_.add(done, seconds);
  const bool terminal = on_terminal();
  const bool first = terminal && !drawn_;
  if (!first && now - last_draw_ < (terminal ? kTerminalPeriod : kPlainPeriod)) return;
  last_draw_ = now;
  const double rate = window_.rate();
  std::string line = label_ + " ";
  if (total_ > 0) {
    const double share = std::clamp(done / total_, 0.0, 1.0);
    if (terminal) {
      const int filled = static_cast<int>(share * kBarWidth);
      line += "[" + std::string(static_cast<size_t>(filled), '=') +
              std::string(static_cast<size_t>(kBarWidth - filled), ' ') + "] ";
    }
    line += print("%.0f%%", 100 * share);
    if (rate > 0) line += ", " + format_duration((total_ - done) / rate) + " left";
  } else {
    line += format_count(done) + " " + unit_;
  }
  if (!unit_.empty()) line += ", " + print(rate < 10 ? "%.2f " : "%.0f ", rate) + unit_ + "/s";
  if (!note.empty()) line += ", " + std::string(note);
  std::fprintf(stderr, terminal ? "\r\033[K%s" : "%s\n", line.c_str());
  std::fflush(stderr);
  drawn_ = terminal;
}

void Progress::clear() {
  if (drawn_) std::fprintf(stderr, "\r\033[K");
  drawn_ = false;
}

void Progress::finish() {
  clear();
  finished_ = true;
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 59.95) return print("%.1f s", seconds);
  char text[64];
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole < 3600)
    std::snprintf(text, sizeof text, "%lld m %02lld s", whole / 60, whole % 60);
  else if (whole < 86400)
    std::snprintf(text, sizeof text, "%lld h %02lld m", whole / 3600, whole % 3600 / 60);
  else
    std::snprintf(text, sizeof text, "%lld d %02lld h", whole / 86400, whole % 86400 / 3600);
  return text;
}

std::string format_bytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  while (bytes >= kNextUnit && unit + 1 < std::size(kUnits)) {
    bytes /= 1000;
    ++unit;
  }
  return print(unit == 0 ? "%.0f %s" : "%.1f %s", bytes, kUnits[unit]);
}

std::string format_count(double count) {
  constexpr const char* kUnits[] = {"", "k", "M", "B", "T"};
  size_t unit = 0;
  while (count >= kNextUnit && unit + 1 < std::size(kUnits)) {
    count /= 1000;
    ++unit;
  }
  return print(unit == 0 ? "%.0f%s" : "%.1f%s", count, kUnits[unit]);
}

}  // namespace octavo
