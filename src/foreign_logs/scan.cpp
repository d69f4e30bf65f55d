#include "foreign_logs/scan.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/text.h"
#include "foreign_logs/metrics.h"

namespace octavo::foreign_logs {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

constexpr size_t kLongestNumber = 64;

}  // namespace

std::optional<double> leading_number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  if (text.starts_with('+')) text.remove_prefix(1);
  text = text.substr(0, kLongestNumber);
  // Commas between the digits before the point are for the eye.
  std::string plain;
  size_t at = 0;
  for (; at < text.size(); ++at) {
    const bool comma = text[at] == ',' && at > 0 && is_digit(text[at - 1]) &&
                       at + 1 < text.size() && is_digit(text[at + 1]);
    if (!comma && !is_digit(text[at]) && !(at == 0 && text[at] == '-')) break;
    if (!comma) plain += text[at];
  }
  plain += text.substr(at);
  double value = 0;
  const auto [end, error] = std::from_chars(plain.data(), plain.data() + plain.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

std::optional<double> whole_number_text(std::string_view text) {
  text = trim(text);
  if (text.empty() || text.size() > kLongestNumber) return std::nullopt;
  if (text.front() == '+') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> number_after(std::string_view line, std::string_view label) {
  const size_t at = line.find(label);
  return at == line.npos ? std::nullopt : leading_number(line.substr(at + label.size()));
}

std::optional<int64_t> step_after(std::string_view line, std::string_view label) {
  const std::optional<double> number = number_after(line, label);
  if (!number || *number < 0 || *number > static_cast<double>(kLastStep) ||
      *number != std::floor(*number))
    return std::nullopt;
  return static_cast<int64_t>(*number);
}

std::optional<double> number_before(std::string_view line, std::string_view label) {
  size_t end = line.find(label);
  if (end == line.npos) return std::nullopt;
  while (end > 0 && line[end - 1] == ' ') --end;
  size_t begin = end;
  while (begin > 0 && end - begin < kLongestNumber &&
         (is_digit(line[begin - 1]) || line[begin - 1] == '.' || line[begin - 1] == ','))
    --begin;
  return leading_number(line.substr(begin, end - begin));
}

bool has(std::string_view line, std::string_view part) {
  return line.find(part) != line.npos;
}

std::string without_colors(std::string_view line) {
  std::string out;
  for (size_t at = 0; at < line.size(); ++at) {
    if (line[at] == '\x1b' && at + 1 < line.size() && line[at + 1] == '[') {
      const size_t end = line.find_first_not_of("0123456789;", at + 2);
      if (end != line.npos && line[end] == 'm') {
        at = end;
        continue;
      }
    }
    out += line[at];
  }
  return out;
}

}  // namespace octavo::foreign_logs
