#include "plan/reasons.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "base/error.h"
#include "plan/fp8_layers.h"

namespace octavo::plan {
namespace {

std::string percent(double share) {
  char text[16];
  std::snprintf(text, sizeof text, "%.0f%%", 100 * share);
  return text;
}

std::string times(double ratio) {
  char text[16];
  std::snprintf(text, sizeof text, "%.2f", ratio);
  return text;
}

std::string milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f ms", seconds < 9.95e-3 ? 1 : 0, 1e3 * seconds);
  return text;
}

struct GainLoss {
  double share;
  std::string line;
};

// Weights that travel as codes take about half as long.
bool same_collectives(const StepTime& high, const StepTime& low) {
  return low.collectives >= 0.97 * high.collectives;
}

// The verdict and its largest reason.
std::string in_one_line(const StepTime& high, const StepTime& low) {
  const GainLoss parts[] = {{high.adapters, "LoRA adapters"},
                            {high.attention, "attention"},
                            {high.head, "the LM head"},
                            {high.elementwise, "norms and activations"},
                            {high.optimizer, "the optimizer"},
                            {same_collectives(high, low) ? high.collectives : 0, "collectives"},
                            {high.host, "the host"}};
  const GainLoss& largest =
      *std::max_element(std::begin(parts), std::end(parts),
                        [](const GainLoss& a, const GainLoss& b) { return a.share < b.share; });
  return str("FP8 gives ", times(high.total / low.total), "x: it speeds up ",
             percent(high.gemms / high.total),
             " of the step; the largest part that it does not "
             "is ",
             largest.line, ", ", percent(largest.share / high.total));
}

// GEMMs whose sides are too short for FP8 to be worth much.
std::string short_gemms(const Workload& work, GemmType type, const Calibration& calibration) {
  constexpr double kLittle = 1.45;
  std::string names;
  const double tokens = static_cast<double>(work.batch * work.length);
  for (const LinearShape& p : block_linears(work.shape)) {
    const double n = static_cast<double>(p.outputs), k = static_cast<double>(p.inputs);
    const double ratio = gemm_seconds(*work.gpu, calibration, tokens * p.share, n, k, false) /
                         gemm_seconds(*work.gpu, calibration, tokens * p.share, n, k, type);
    if (ratio < kLittle) names += str(names.empty() ? "" : ", ", p.name, " ", times(ratio), "x");
  }
  return names;
}

}  // namespace

std::vector<std::string> gain_reasons(Workload work, const Calibration& calibration) {
  const StepTime low = step_time(work, calibration);
  const GemmType type = gemm_type(work.recipe);
  work.recipe = kBf16;
  const StepTime high = step_time(work, calibration);
  const double whole = high.total;
  std::vector<std::string> lines = {in_one_line(high, low)};
  const double in_fp8 = fp8_weight_share(work.shape, work.fp8_shares);
  if (type == GemmType::kReadsFp4)
    lines.push_back(
        str("nvfp4 in ", percent(in_fp8),
            " of the blocks, the others in BF16. No published run has FP4 GEMMs to fit: "
            "they are taken to reach FP8's share of the peak"));
  else if (in_fp8 < 1)
    lines.push_back(str("fp8_skip leaves ", percent(1 - in_fp8), " of the blocks' GEMMs in BF16"));
  const bool same = same_collectives(high, low);
  const double sent = same ? 0 : high.collectives - low.collectives;
  lines.push_back(str("GEMMs of the blocks: ", percent(high.gemms / whole), " of the BF16 step, ",
                      times(high.gemms / low.gemms), " times as fast in FP8; the most that ",
                      same ? "" : "they and collectives ", "could ", same ? "be gained" : "gain",
                      " is ", times(whole / (whole - high.gemms + low.gemms - sent)), "x"));
  if (!same)
    lines.push_back(str("collectives: ", percent(high.collectives / whole), " of the BF16 step, ",
                        milliseconds(high.collectives), " in BF16 and ",
                        milliseconds(low.collectives), " in FP8, whose weights travel as codes"));
  if (low.quantize > 0)
    lines.push_back(str("quantizing takes ", percent(low.quantize / whole),
                        " of the BF16 step back: ", times(whole / low.total), "x is left"));
  std::vector<GainLoss> losses = {
      {high.attention / whole, "attention stays in BF16: its share grows with the sequence length"},
      {high.head / whole, "the LM head and loss stay in BF16: large vocabularies on narrow models"},
      {high.adapters / whole,
       "LoRA adapters stay in BF16, and frozen weights have no weight gradient to speed up"},
      {high.elementwise / whole, "norms, residuals and activations move bytes, not FLOPs"},
      {same ? high.collectives / whole : 0, "collectives take as long in both"},
      {high.host / whole, "the host cannot launch faster"},
      {high.optimizer / whole, "the optimizer is bound by memory"}};
  std::sort(losses.begin(), losses.end(),
            [](const GainLoss& a, const GainLoss& b) { return a.share > b.share; });
  constexpr double kWorthALine = 0.04;
  for (const GainLoss& loss : losses)
    if (loss.share >= kWorthALine) lines.push_back(str(percent(loss.share), ": ", loss.line));
  if (const std::string names = short_gemms(work, type, calibration); !names.empty())
    lines.push_back("short sides leave FP8's units waiting: " + names);
  return lines;
}

}  // namespace octavo::plan
