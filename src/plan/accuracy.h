#pragma once
// How wrong the forecasts are: the results of tests/conformance/plan_published.py and plan_memory,
// which fail when these say better than they find.

namespace octavo::plan {

inline constexpr double kMedianError = 0.08;     // of tokens/s, held-out sources
inline constexpr double kNinetyError = 0.25;     // 90th percentile
inline constexpr double kGainError = 0.12;       // FP8's speed-up is within this …
inline constexpr double kGainShare = 0.73;       // … for this share of the held-out pairs
inline constexpr double kMemoryError = 0.05;     // of the peak on a GPU
inline constexpr double kCpuMemoryError = 0.10;  // of the process's peak on a CPU

}  // namespace octavo::plan
