#include "python_env/requirement.h"

#include <sys/utsname.h>

#include <algorithm>

#include "base/text.h"
#include "python_env/ascii.h"

namespace octavo::python_env {
namespace {

constexpr size_t kLongestRequirement = 4096;
constexpr int kDeepestMarker = 32;

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}

std::optional<bool> both(std::optional<bool> a, std::optional<bool> b) {
  if ((a && !*a) || (b && !*b)) return false;
  return a && b ? std::optional(true) : std::nullopt;
}
std::optional<bool> either(std::optional<bool> a, std::optional<bool> b) {
  if ((a && *a) || (b && *b)) return true;
  return a && b ? std::optional(false) : std::nullopt;
}

// A value of a marker: a quoted text, or the value of a name.
struct MarkerOperand {
  std::optional<std::string> value;
};

std::optional<bool> compare(const MarkerOperand& left, const std::string& sign,
                            const MarkerOperand& right) {
  if (!left.value || !right.value) return std::nullopt;
  const std::string &a = *left.value, &b = *right.value;
  if (sign == "in") return b.find(a) != b.npos;
  if (sign == "not in") return b.find(a) == b.npos;
  const auto specifiers = parse_specifiers(sign + b);
  const auto version = parse_version(a);
  if (specifiers && version) return allows(*specifiers, *version);
  if (sign == "==" || sign == "===") return a == b;
  if (sign == "!=") return a != b;
  if (sign == "<") return a < b;
  if (sign == ">") return a > b;
  if (sign == "<=") return a <= b;
  if (sign == ">=") return a >= b;
  return std::nullopt;
}

class MarkerReader {
 public:
  MarkerReader(std::string_view rest, const MarkerValues& values) : rest_(rest), values_(values) {}

  std::optional<bool> whole() {
    const auto result = any_of();
    skip_spaces();
    return is_bad_ || !rest_.empty() ? std::nullopt : result;
  }

 private:
  std::optional<bool> any_of() {
    auto result = all_of();
    while (take_word("or")) result = either(result, all_of());
    return result;
  }
  std::optional<bool> all_of() {
    auto result = one();
    while (take_word("and")) result = both(result, one());
    return result;
  }
  std::optional<bool> one() {
    skip_spaces();
    if (rest_.starts_with('(')) {
      rest_.remove_prefix(1);
      if (++depth_ > kDeepestMarker) return bad();
      const auto result = any_of();
      --depth_;
      skip_spaces();
      if (!rest_.starts_with(')')) return bad();
      rest_.remove_prefix(1);
      return result;
    }
    const MarkerOperand left = operand();
    const std::string sign = comparison();
    const MarkerOperand right = operand();
    return is_bad_ ? std::nullopt : compare(left, sign, right);
  }

  MarkerOperand operand() {
    skip_spaces();
    if (rest_.starts_with('\'') || rest_.starts_with('"')) {
      const size_t end = rest_.find(rest_.front(), 1);
      if (end == rest_.npos) return bad_operand();
      MarkerOperand out{std::string(rest_.substr(1, end - 1))};
      rest_.remove_prefix(end + 1);
      return out;
    }
    const auto length =
        static_cast<size_t>(std::ranges::find_if_not(rest_, is_name_character) - rest_.begin());
    if (length == 0) return bad_operand();
    const auto known = values_.find(rest_.substr(0, length));
    rest_.remove_prefix(length);
    return known == values_.end() ? MarkerOperand{} : MarkerOperand{known->second};
  }

  std::string comparison() {
    skip_spaces();
    for (const std::string_view sign : {"===", "==", "~=", "!=", "<=", ">=", "<", ">"})
      if (rest_.starts_with(sign)) {
        rest_.remove_prefix(sign.size());
        return std::string(sign);
      }
    if (take_word("in")) return "in";
    if (take_word("not") && take_word("in")) return "not in";
    is_bad_ = true;
    return "";
  }

  bool take_word(std::string_view word) {
    skip_spaces();
    if (is_bad_ || !rest_.starts_with(word)) return false;
    if (rest_.size() > word.size() && is_name_character(rest_[word.size()])) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  void skip_spaces() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t'))
      rest_.remove_prefix(1);
  }
  std::optional<bool> bad() {
    is_bad_ = true;
    return std::nullopt;
  }
  MarkerOperand bad_operand() {
    is_bad_ = true;
    return {};
  }

  std::string_view rest_;
  const MarkerValues& values_;
  int depth_ = 0;
  bool is_bad_ = false;
};

}  // namespace

std::string normalised(std::string_view name) {
  std::string out;
  for (const char c : ascii_lower(name)) {
    const bool is_separator = c == '-' || c == '_' || c == '.';
    if (!is_separator || out.empty() || out.back() != '-') out += is_separator ? '-' : c;
  }
  return out;
}

std::optional<Requirement> parse_requirement(std::string_view line) {
  if (line.size() > kLongestRequirement) return std::nullopt;
  Requirement out;
  const size_t semicolon = line.find(';');
  if (semicolon != line.npos) {
    out.marker = trim(line.substr(semicolon + 1));
    line = line.substr(0, semicolon);
  }
  line = trim(line);
  const auto length =
      static_cast<size_t>(std::ranges::find_if_not(line, is_name_character) - line.begin());
  if (length == 0) return std::nullopt;
  out.name = normalised(line.substr(0, length));
  line = trim(line.substr(length));
  if (line.starts_with('[')) {
    const size_t end = line.find(']');
    if (end == line.npos) return std::nullopt;
    line = trim(line.substr(end + 1));
  }
  if (line.starts_with('(') && line.ends_with(')')) line = trim(line.substr(1, line.size() - 2));
  const auto specifiers = parse_specifiers(line);
  if (!specifiers) return std::nullopt;
  out.versions = line;
  out.specifiers = *specifiers;
  return out;
}

MarkerValues marker_values(const std::string& python_version) {
  MarkerValues out = {{"os_name", "posix"},
                      {"sys_platform", "linux"},
                      {"platform_system", "Linux"},
                      {"platform_python_implementation", "CPython"},
                      {"implementation_name", "cpython"},
                      {"extra", ""}};
  utsname machine{};
  if (uname(&machine) == 0) out["platform_machine"] = machine.machine;
  if (const auto version = parse_version(python_version)) {
    out["python_version"] =
        std::to_string(version->number(0)) + "." + std::to_string(version->number(1));
    if (version->release.size() > 2) out["python_full_version"] = version->text();
  }
  return out;
}

std::optional<bool> holds(std::string_view marker, const MarkerValues& values) {
  if (trim(marker).empty()) return true;
  if (marker.size() > kLongestRequirement) return std::nullopt;
  return MarkerReader(marker, values).whole();
}

}  // namespace octavo::python_env
