#include "train/state/checkpoint_clock.h"

#include <algorithm>
#include <cmath>

namespace octavo::train {
namespace {

constexpr double kLongest = 3600, kShortest = 60, kMostShare = 0.05;  // seconds, of all time
constexpr double kFirstGuess = 30;  // seconds of a save before one was measured

}  // namespace

double young_daly_seconds(double save, double between_failures) {
  const double best = std::sqrt(2 * std::max(save, 0.0) * std::max(between_failures, 0.0));
  // A save that takes long is worth more than the hour: the share comes last.
  return std::max({std::min(best, kLongest), kShortest, save / kMostShare});
}

CheckpointClock::CheckpointClock(double minutes, double between_failures, Clock::time_point start)
    : minutes_(minutes), between_failures_(between_failures), last_(start) {}

double CheckpointClock::interval(double save) const {
  if (minutes_ >= 0) return 60 * minutes_;
  return young_daly_seconds(save > 0 ? save : kFirstGuess, between_failures_);
}

bool CheckpointClock::is_due(double save, Clock::time_point now) const {
  const double seconds = interval(save);
  return seconds > 0 && std::chrono::duration<double>(now - last_).count() >= seconds;
}

std::optional<CheckpointClock> save_clock_of(const config::Settings& settings, int64_t ranks,
                                             CheckpointClock::Clock::time_point start) {
  if (settings.checkpoint_freq == 0 && settings.checkpoint_minutes < 0) return std::nullopt;
  const double between_failures =
      3600 * settings.gpu_hours_per_failure / static_cast<double>(ranks);
  return CheckpointClock(settings.checkpoint_minutes, between_failures, start);
}

}  // namespace octavo::train
