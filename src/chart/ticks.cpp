#include "chart/ticks.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace octavo::chart {
namespace {

constexpr int kMostTicks = 100;

std::string printed(const char* format, int digits, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, digits, value);
  return text;
}

// 6e-04 and 6e+04 as people write them: 6e-4, 6e4.
std::string scientific(int digits, double value) {
  if (value == 0) return "0";
  std::string text = printed("%.*e", digits, value);
  const size_t e = text.find('e');
  if (e == std::string::npos) return text;
  return text.substr(0, e) + "e" + std::to_string(std::stoi(text.substr(e + 1)));
}

// The digits after the point that `value` needs, at most `most`.
int digits_of(double value, int most) {
  for (int digits = 0; digits < most; ++digits) {
    const double scaled = value * std::pow(10, digits);
    if (std::abs(scaled - std::round(scaled)) < 1e-6 * std::max(1.0, std::abs(scaled)))
      return digits;
  }
  return most;
}

struct Unit {
  double size;
  const char* name;
};

Unit unit_of(double most) {
  if (most >= 1e12) return {1e12, "T"};
  if (most >= 1e9) return {1e9, "G"};
  if (most >= 1e6) return {1e6, "M"};
  if (most >= 1e4) return {1e3, "k"};
  return {1, ""};
}

int mantissa_digits(double value) {
  if (value == 0) return 0;
  return digits_of(value / std::pow(10, std::floor(std::log10(std::abs(value)) + 1e-9)), 6);
}

std::string shortest(double value) {
  const double size = std::abs(value);
  if (size < 1e-3 || size >= 1e15) return scientific(mantissa_digits(value), value);
  Unit unit = unit_of(size);
  if (size >= 1e3 && size < 1e4) unit = {1e3, "k"};  // an axis to 9000 would say 1000
  return printed("%.*g", 6, value / unit.size) + unit.name;
}

}  // namespace

std::vector<double> round_ticks(double low, double high, int about) {
  if (!std::isfinite(low) || !std::isfinite(high) || high < low) return {};
  if (high == low) return {low};
  const double rough = (high - low) / std::clamp(about, 1, kMostTicks);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (double factor : {1.0, 2.0, 5.0})
    if (rough <= 1.0001 * factor * power) {
      step = factor * power;
      break;
    }
  std::vector<double> ticks;
  const double slack = 1e-9 * (high - low);
  const double first = std::ceil((low - slack) / step);
  for (int i = 0; i <= 2 * kMostTicks; ++i) {
    const double tick = (first + i) * step;
    if (tick > high + slack) break;
    ticks.push_back(tick == 0 ? 0.0 : tick);  // never "-0"
  }
  return ticks;
}

std::vector<double> log_ticks(double low, double high, int about) {
  if (!(low > 0) || !std::isfinite(high) || high < low) return {};
  const int first = static_cast<int>(std::floor(std::log10(low)));
  const int last = static_cast<int>(std::ceil(std::log10(high)));
  const int every = std::max(1, (last - first) / std::max(1, about));
  const auto inside = [&](std::initializer_list<double> factors) {
    std::vector<double> ticks;
    for (int power = first; power <= last; power += every)
      for (double factor : factors) {
        const double tick = factor * std::pow(10, power);
        if (tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9)) ticks.push_back(tick);
      }
    return ticks;
  };
  std::vector<double> ticks = inside({1});
  if (ticks.size() < 3) ticks = inside({1, 2, 5});
  return ticks.size() < 3 ? round_ticks(low, high, about) : ticks;
}

std::vector<std::string> tick_labels(const std::vector<double>& ticks) {
  double most = 0, least = INFINITY;
  for (double tick : ticks) {
    most = std::max(most, std::abs(tick));
    if (tick != 0) least = std::min(least, std::abs(tick));
  }
  std::vector<std::string> labels;
  // One unit cannot serve 1 and a million: then every label is as short as it can be.
  const bool wide = least < most / 500;
  const bool small = most < 2e-3 || most >= 1e15;
  const Unit unit = unit_of(most);
  int digits = 0;
  for (double tick : ticks)
    digits = std::max(digits, small ? mantissa_digits(tick) : digits_of(tick / unit.size, 9));
  for (double tick : ticks) {
    if (tick == 0)
      labels.push_back("0");
    else if (wide)
      labels.push_back(shortest(tick));
    else if (small)
      labels.push_back(scientific(digits, tick));
    else
      labels.push_back(printed("%.*f", digits, tick / unit.size) + unit.name);
  }
  return labels;
}

std::string short_number(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "not a number" : value > 0 ? "inf" : "-inf";
  const double size = std::abs(value);
  if (size != 0 && (size < 1e-3 || size >= 1e15)) return scientific(2, value);
  const Unit unit = unit_of(size);
  return printed("%.*g", 4, value / unit.size) + unit.name;
}

}  // namespace octavo::chart
