// A forecast in a dozen lines: what a reader decides by. The tables are in report.cpp.

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/printed.h"
#include "plan/report.h"

namespace octavo::plan {
namespace {

double ninety_error(std::span<const HeldOutError> all, std::string_view name) {
  for (const HeldOutError& it : all)
    if (it.name == name) return it.ninety;
  return kNinetyError;
}

std::string memory_lines(const Forecast& f) {
  if (f.cpu)
    return printed("memory: %.2f GB of this process on a CPU, within %.0f%%\n",
                   f.memory().total / kGiga, 100 * kCpuMemoryError);
  std::string out =
      printed("memory: %.1f GB a GPU, within %.0f%%; %s has %.1f GB to use: it %s\n",
              f.memory().total / kGiga, 100 * kMemoryError, std::string(f.gpu->title).c_str(),
              f.memory_limit / kGiga, f.fits() ? "fits" : "does NOT fit");
  if (f.fits() && !has_room(f.memory(), f.memory_limit))
    out +=
        "  little room: set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True against "
        "fragmentation\n";
  constexpr size_t kMostLines = 3;
  const std::vector<std::string>& advice = f.advice.lines;
  for (size_t i = 0; i < std::min(kMostLines, advice.size()); ++i)
    out += str(i == 0 ? "  change: " : "    then: ", advice[i], "\n");
  if (advice.size() > kMostLines)
    out += str("    then ", advice.size() - kMostLines, " more: --details\n");
  return out;
}

std::string speed_line(const Forecast& f) {
  const RecipeForecast& it = f.chosen();
  const SpeedRange range = speed_range(f);
  const std::string name = it.runs ? str("FP8 (", name_of(it.runs), ")") : "BF16";
  return printed(
      "speed: %.0f tokens/s a GPU in %s, %.0f to %.0f for nine runs of ten; a step takes "
      "%.*f ms\n",
      it.time.tokens_per_s, name.c_str(), range.low, range.high, it.time.total < 0.1 ? 1 : 0,
      1e3 * it.time.total);
}

std::string rounded_number(double value) {
  return printed(value < 9.95 ? "%.1f" : "%.0f", value);
}

std::string cost_line(const Forecast& f) {
  const Costs& costs = f.wants_fp8 ? f.wanted_costs : f.bf16_costs;
  const SpeedRange range = speed_range(f);
  const double speed = f.chosen().time.tokens_per_s;
  const auto between = [&](double value) {
    return str(rounded_number(value), " (", rounded_number(value * speed / range.high), " to ",
               rounded_number(value * speed / range.low), ")");
  };
  std::string out = printed("time: %.3g tokens in ", costs.tokens) + between(costs.hours) +
                    " hours, " + rounded_number(costs.gpu_hours) + " GPU-hours";
  if (costs.money > 0) out += ", cost " + between(costs.money);
  if (f.failures.goodput < 0.99)
    out += printed("; goodput %.0f%% with a checkpoint every %.0f minutes",
                   100 * f.failures.goodput, f.failures.checkpoint_interval / 60);
  return out + "\n";
}

// The verdict on FP8, in the words of the reasons, and the recipes by their speed.
std::string fp8_lines(const Forecast& f) {
  std::string out;
  for (const std::string& reason : f.reasons) {
    const bool verdict = reason.starts_with("FP8 gives");
    out += str(verdict ? "" : "FP8: ", reason, "\n");
    if (verdict) break;
  }
  std::vector<const RecipeForecast*> native;
  for (const RecipeForecast& r : f.recipes)
    if (r.refusal.empty() && r.recipe != kBf16) native.push_back(&r);
  if (native.empty()) return out;
  std::ranges::stable_sort(native, [](const auto* a, const auto* b) { return a->gain > b->gain; });
  const bool pays = native.front()->gain > 1.01;
  out += pays ? "recipes: " : "no recipe pays here: ";
  for (const RecipeForecast* r : native)
    out += str(r == native.front() ? "" : ", ", name_of(r->recipe), printed(" %.2fx", r->gain));
  return out + "\n";
}

std::string lever_line(const Forecast& f) {
  if (!f.program.empty() || f.cpu || !f.fits()) return "";
  if (f.levers.empty()) return "lever: no single change gains 2% and fits\n";
  const Lever& best = f.levers.front();
  return str("lever: ", best.what,
             printed(": +%.0f%% tokens/s, %.1f GB\n", 100 * (best.gain - 1), best.bytes / kGiga));
}

std::string within_text(const HeldOutError& it) {
  return str("half within ", std::lround(100 * it.median), "%, nine tenths within ",
             std::lround(100 * it.ninety), "%");
}

std::string doubt_line(const Forecast& f) {
  const std::string of = f.program.empty() ? "programs on Transformer Engine" : f.program;
  return str("how sure: held-out measurements of ", of, ": ", held_out_text(kStackErrors, f.stack),
             "; of this GPU: ", held_out_text(kGpuErrors, f.gpu->name),
             "; of all kinds, scored blind with the model before this one: ",
             held_out_text(kBlindErrors, "all"),
             "; with this one, no longer blind: ", within_text(kBlindRowsErrors[0]),
             "; octavo itself was never timed on a GPU\n");
}

}  // namespace

SpeedRange speed_range(const Forecast& f) {
  const double error =
      std::max(ninety_error(kStackErrors, f.stack), ninety_error(kGpuErrors, f.gpu->name));
  const double speed = f.chosen().time.tokens_per_s;
  return {speed / (1 + error), speed * (1 + error)};
}

std::string held_out_text(std::span<const HeldOutError> all, std::string_view name) {
  for (const HeldOutError& it : all)
    if (it.name == name) return str(it.rows, ", ", within_text(it));
  return "none";
}

std::string answer_of(const Forecast& f) {
  return head_of(f) + memory_lines(f) + speed_line(f) + cost_line(f) + fp8_lines(f) +
         lever_line(f) + doubt_line(f);
}

}  // namespace octavo::plan
