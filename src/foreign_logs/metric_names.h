#pragma once
// What trainers call the numbers that a comparison needs.

#include <span>
#include <string_view>

namespace octavo::foreign_logs {

enum class Role {
  kLoss,
  kValidation,
  kSeconds,
  kTokens,
  kTokensPerSecond,
  kTokensPerGpuSecond,  // of one GPU
  kPeakBytes,
  kClock
};

struct KnownMetric {
  std::string_view name;
  Role role;
  double unit;  // that one of its numbers is: 1e-3 seconds
  std::string_view writer;
};

// Of the names of one role the first that a log has counts.
std::span<const KnownMetric> known_metrics();

// Null when the name is none of them.
const KnownMetric* find_metric(std::string_view name);

// What a row's step may be called; the first that the rows with losses have counts.
std::span<const std::string_view> step_names();

// What readers call the time at which a step was logged.
inline constexpr std::string_view kWallTime = "wall_time";

}  // namespace octavo::foreign_logs
