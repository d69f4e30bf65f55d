#pragma once
// How wrong the forecasts are: the results of tests/conformance/plan_published.py and plan_memory,
// which fail when these say better than they find.

#include <string_view>

namespace octavo::plan {

inline constexpr double kMedianError = 0.08;  // of tokens/s, held-out sources
inline constexpr double kNinetyError = 0.25;  // 90th percentile
// The same by who wrote the software, and by GPU: what a forecast of one of them can be judged by.
struct HeldOutError {
  std::string_view name;
  int rows;
  double median, ninety;
};
// Rows that nothing was fitted to and that were scored once, after the model was frozen
// (tests/conformance/plan_blind.csv), of all stacks and GPUs.
inline constexpr HeldOutError kBlindErrors[] = {{"all", 64, 0.05, 0.25}};
inline constexpr HeldOutError kStackErrors[] = {{"compiled", 10, 0.45, 0.88},
                                                {"foundry", 9, 0.03, 0.07},
                                                {"fused", 20, 0.13, 0.20},
                                                {"native", 26, 0.08, 0.17},
                                                {"xla", 10, 0.06, 0.12}};
inline constexpr HeldOutError kGpuErrors[] = {
    {"a100", 8, 0.02, 0.07},  {"a100_40gb", 1, 0.10, 0.10}, {"b200", 7, 0.77, 0.90},
    {"gb200", 6, 0.03, 0.05}, {"h100", 32, 0.12, 0.22},     {"h100_500w", 3, 0.06, 0.10},
    {"h200", 2, 0.13, 0.14},  {"rtx5090", 16, 0.08, 0.12}};
inline constexpr double kGainError = 0.12;       // FP8's speed-up is within this …
inline constexpr double kGainShare = 0.90;       // … for this share of the held-out pairs
inline constexpr double kMemoryError = 0.05;     // of the peak on a GPU
inline constexpr double kCpuMemoryError = 0.10;  // of the process's peak on a CPU

}  // namespace octavo::plan
