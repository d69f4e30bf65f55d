#include "sweep/parameter.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "config/key_makers.h"

namespace octavo::sweep {
namespace {

// The normal distribution's quantile by bisection: 80 halvings of [-40, 40] are exact to a double.
double normal_quantile(double u) {
  double low = -40, high = 40;
  for (int i = 0; i < 80; ++i) {
    const double middle = 0.5 * (low + high);
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < u ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

// As many digits as say something. Whole numbers have no exponent: an integer key takes them.
std::string number_text(double value, int digits) {
  char buffer[40];
  const auto printed =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::general, digits);
  const double rounded =
      config::parse_number<double>(std::string_view(buffer, printed.ptr)).value_or(value);
  if (std::nearbyint(rounded) == rounded && std::abs(rounded) < 1e15)
    return config::print_number(static_cast<int64_t>(rounded));
  return config::print_number(rounded);
}

// The multiple of the step that is nearest, inside the range where there is one.
std::string stepped(const Parameter& p, double value) {
  const bool bounded = p.kind == Kind::kUniform || p.kind == Kind::kLogUniform;
  if (p.step <= 0) {
    const std::string text = number_text(value, 5);
    const double rounded = config::parse_number<double>(text).value_or(value);
    const bool outside = bounded && (rounded < p.low || rounded > p.high);
    return outside ? config::print_number(value) : text;
  }
  double steps = std::nearbyint(value / p.step);
  if (bounded && steps * p.step > p.high * (1 + 1e-12)) steps -= 1;
  if (bounded && steps * p.step < p.low * (1 - 1e-12)) steps += 1;
  return number_text(steps * p.step, 12);  // 0.30000000000000004 is 0.3
}

}  // namespace

size_t index_at(const Parameter& p, double u) {
  const size_t count = p.values.size();
  if (p.probabilities.empty())
    return std::min(count - 1, static_cast<size_t>(u * static_cast<double>(count)));
  double sum = 0;
  for (size_t i = 0; i < count; ++i) {
    sum += p.probabilities[i];
    if (u < sum) return i;
  }
  return count - 1;
}

std::string value_at(const Parameter& p, double u) {
  switch (p.kind) {
    case Kind::kConstant:
      return p.values.front();
    case Kind::kCategorical:
      return p.values[index_at(p, u)];
    case Kind::kInteger:
      return number_text(std::min(p.high, std::floor(p.low + u * (p.high - p.low + 1))), 16);
    case Kind::kUniform:
      return stepped(p, p.low + u * (p.high - p.low));
    case Kind::kLogUniform:
      return stepped(p, std::exp(std::log(p.low) + u * (std::log(p.high) - std::log(p.low))));
    case Kind::kNormal:
      return stepped(p, p.mu + p.sigma * normal_quantile(u));
    case Kind::kLogNormal:
      break;
  }
  return stepped(p, std::exp(p.mu + p.sigma * normal_quantile(u)));
}

double middle_of(const Parameter& p, size_t index) {
  if (p.probabilities.empty())
    return (static_cast<double>(index) + 0.5) / static_cast<double>(p.values.size());
  double before = 0;
  for (size_t i = 0; i < index; ++i) before += p.probabilities[i];
  return before + 0.5 * p.probabilities[index];
}

bool varies(const Parameter& p) {
  return p.kind != Kind::kConstant && !(p.kind == Kind::kCategorical && p.values.size() == 1);
}

bool is_countable(const Parameter& p) {
  return p.kind == Kind::kConstant || p.kind == Kind::kCategorical || p.kind == Kind::kInteger ||
         (p.kind == Kind::kUniform && p.step > 0);
}

bool is_logarithmic(const Parameter& p) {
  return p.kind == Kind::kLogUniform || p.kind == Kind::kLogNormal;
}

std::vector<std::string> all_values(const Parameter& p, size_t most) {
  OCTAVO_ASSERT(is_countable(p));
  if (p.kind == Kind::kConstant || p.kind == Kind::kCategorical) return p.values;
  const double step = p.kind == Kind::kInteger ? 1 : p.step;
  const double count = std::floor((p.high - p.low) / step + 1e-9) + 1;
  if (!(count <= static_cast<double>(most)))
    fail(ExitCode::kUsage, "sweep", p.name, ": wanted at most ", most, " values in a grid, found ",
         count, "; use method random or a larger q");
  std::vector<std::string> values;
  for (double i = 0; i < count; ++i)
    values.push_back(number_text(p.low + i * step, p.kind == Kind::kInteger ? 16 : 12));
  return values;
}

}  // namespace octavo::sweep
