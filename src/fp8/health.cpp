#include "fp8/health.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace octavo::fp8 {
namespace {

double percent(int64_t part, int64_t whole) {
  return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0;
}

std::string line(const char* form, double found, double limit) {
  char text[128];
  std::snprintf(text, sizeof text, form, found, limit);
  return text;
}

}  // namespace

TensorHealth& TensorHealth::operator+=(const TensorHealth& other) {
  elements += other.elements;
  nonzero += other.nonzero;
  incidents += other.incidents;
  if (other.amax > amax || factor == 0) factor = other.factor;
  amax = std::max(amax, other.amax);
  signal += other.signal;
  noise += other.noise;
  return *this;
}

double TensorHealth::saturated_percent() const {
  return percent(incidents.saturated + incidents.inf, elements);
}

double TensorHealth::underflowed_percent() const {
  return percent(incidents.underflowed, nonzero);
}

double TensorHealth::sqnr_db() const {
  constexpr double kNoNoise = 200;
  if (noise == 0) return kNoNoise;
  if (!std::isfinite(noise)) return 0;  // a scale that was not finite: nothing is left
  return std::min(kNoNoise, 10 * std::log10(std::max(signal / noise, 1e-20)));
}

std::array<double, kHealthStats> to_stats(const TensorHealth& h) {
  const auto count = [](int64_t n) { return static_cast<double>(n); };
  return {count(h.elements),
          count(h.nonzero),
          count(h.incidents.nan),
          count(h.incidents.inf),
          count(h.incidents.saturated),
          count(h.incidents.underflowed),
          h.amax,
          h.factor,
          h.signal,
          h.noise};
}

TensorHealth from_stats(std::span<const double, kHealthStats> f) {
  const auto count = [&](size_t i) { return static_cast<int64_t>(f[i]); };
  TensorHealth h;
  h.elements = count(0);
  h.nonzero = count(1);
  h.incidents = {.nan = count(2), .inf = count(3), .saturated = count(4), .underflowed = count(5)};
  h.amax = static_cast<float>(f[6]);
  h.factor = static_cast<float>(f[7]);
  h.signal = f[8];
  h.noise = f[9];
  return h;
}

std::string health_problem(const TensorHealth& h, const Limits& limits) {
  if (h.incidents.nan > 0) return std::to_string(h.incidents.nan) + " NaN";
  if (h.incidents.inf > 0) return std::to_string(h.incidents.inf) + " infinite";
  if (h.elements > 0 && h.nonzero == 0) return "all zero";
  if (h.saturated_percent() > limits.saturated_percent)
    return line("%.2f%% saturated (limit %.2g%%)", h.saturated_percent(), limits.saturated_percent);
  if (h.underflowed_percent() > limits.underflowed_percent)
    return line("%.1f%% underflowed to zero (limit %.3g%%)", h.underflowed_percent(),
                limits.underflowed_percent);
  if (h.sqnr_db() < limits.sqnr_db)
    return line("signal to quantization noise %.1f dB (limit %.3g dB)", h.sqnr_db(),
                limits.sqnr_db);
  return {};
}

}  // namespace octavo::fp8
