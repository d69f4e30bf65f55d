#include "jinja/filters.h"

#include <charconv>
#include <cmath>

#include "base/printable.h"
#include "base/text.h"
#include "jinja/operators.h"
#include "jinja/python_text.h"

namespace octavo::jinja {
namespace {

Value default_filter(Interpreter&, const Value& input, Arguments& arguments) {
  const auto bound = bind_arguments("default", arguments, {"default_value", "boolean"});
  const bool by_truth = !bound[1].is(Kind::kMissing) && truth(bound[1]);
  const bool replaced = input.is(Kind::kUndefined) || (by_truth && !truth(input));
  if (!replaced) return input;
  return bound[0].is(Kind::kMissing) ? Value::text("") : bound[0];
}

// Python's int(text, base), in 64 bits.
std::optional<int64_t> integer_of_text(std::string_view text, int base) {
  std::string digits(strip(text, Ends::kBoth));
  bool negative = false;
  if (digits.starts_with('-') || digits.starts_with('+')) {
    negative = digits[0] == '-';
    digits.erase(0, 1);
  }
  constexpr std::pair<char, int> kPrefixes[] = {{'x', 16}, {'o', 8}, {'b', 2}};
  for (const auto& [letter, wanted] : kPrefixes)
    if (base == wanted && digits.size() > 1 && digits[0] == '0' && (digits[1] | 32) == letter) {
      digits.erase(0, 2);
      if (digits.starts_with('_')) digits.erase(0, 1);
      break;
    }
  if (digits.empty() || digits.front() == '_' || digits.back() == '_' ||
      digits.find("__") != digits.npos)
    return std::nullopt;
  std::erase(digits, '_');
  if (!is_ascii(digits)) {
    for (const char32_t point : code_points(digits))
      if (point > 0x7F && is_all(to_utf8({&point, 1}), TextClass::kDigit))
        refuse("other digits than those of ASCII in int are not supported");
    return std::nullopt;
  }
  if (negative) digits.insert(0, "-");
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (end != digits.data() + digits.size() || error == std::errc::invalid_argument)
    return std::nullopt;
  if (error != std::errc()) refuse("wanted an integer of 64 bits, found a larger one");
  return value;
}

std::optional<double> float_of_text(std::string_view text) {
  std::string digits(strip(text, Ends::kBoth));
  for (size_t i = 0; i < digits.size(); ++i) {
    const auto is_digit = [&](size_t at) {
      return at < digits.size() && digits[at] >= '0' && digits[at] <= '9';
    };
    if (digits[i] == '_' && (i == 0 || !is_digit(i - 1) || !is_digit(i + 1))) return std::nullopt;
  }
  std::erase(digits, '_');
  if (digits.empty() || !is_ascii(digits)) return std::nullopt;
  const std::string low = lower(digits);
  for (const char* word : {"inf", "infinity", "nan"})
    for (const char* sign : {"", "+", "-"})
      if (low == std::string(sign) + word)
        return (*sign == '-' ? -1 : 1) * (word[0] == 'n' ? std::nan("") : HUGE_VAL);
  if (low.find_first_not_of("0123456789.e+-") != low.npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(digits.c_str(), &end);
  if (*end != '\0') return std::nullopt;
  return value;
}

int64_t truncated(double value) {
  if (std::abs(value) >= 9.2e18) refuse("wanted an integer of 64 bits, found a larger one");
  return static_cast<int64_t>(value);
}

Value int_filter(Interpreter&, const Value& input, Arguments& arguments) {
  const auto bound = bind_arguments("int", arguments, {"default", "base"});
  const Value otherwise = bound[0].is(Kind::kMissing) ? Value::integer(0) : bound[0];
  if (input.is(Kind::kUndefined)) refuse(input.why_undefined());
  if (input.is_text()) {
    const int64_t base = bound[1].is(Kind::kMissing) ? 10
                         : bound[1].is_integral()    ? bound[1].as_int()
                                                     : -1;
    if (base != 2 && base != 8 && base != 10 && base != 16) refuse("int wants base 2, 8, 10 or 16");
    if (const auto value = integer_of_text(input.as_text(), static_cast<int>(base)))
      return Value::integer(*value);
    const auto value = float_of_text(input.as_text());
    return value && std::isfinite(*value) ? Value::integer(truncated(*value)) : otherwise;
  }
  if (input.is_integral()) return Value::integer(input.as_int());
  if (!input.is(Kind::kFloat)) return otherwise;
  if (std::isinf(input.as_float())) refuse("int of infinity");
  return std::isnan(input.as_float()) ? otherwise : Value::integer(truncated(input.as_float()));
}

Value float_filter(Interpreter&, const Value& input, Arguments& arguments) {
  const auto bound = bind_arguments("float", arguments, {"default"});
  const Value otherwise = bound[0].is(Kind::kMissing) ? Value::real(0) : bound[0];
  if (input.is(Kind::kUndefined)) refuse(input.why_undefined());
  if (input.is_number()) return Value::real(input.as_float());
  if (!input.is_text()) return otherwise;
  const auto value = float_of_text(input.as_text());
  return value ? Value::real(*value) : otherwise;
}

Value round_filter(Interpreter&, const Value& input, Arguments& arguments) {
  const auto bound = bind_arguments("round", arguments, {"precision", "method"});
  const int64_t precision = bound[0].is(Kind::kMissing) ? 0
                            : bound[0].is_integral()    ? bound[0].as_int()
                                                        : -1;
  const std::string method = bound[1].is(Kind::kMissing) ? "common"
                             : bound[1].is_text()        ? bound[1].as_text()
                                                         : "";
  if (method != "common" && method != "ceil" && method != "floor")
    refuse("round wants common, ceil or floor");
  if (precision < 0 || precision > 300) refuse("round wants a precision of 0 to 300");
  if (input.is(Kind::kUndefined)) refuse(input.why_undefined());
  if (!input.is_number()) refuse("round wants a number, found ", type_name(input));
  if (method != "common") {
    const double factor = std::pow(10.0, static_cast<double>(precision));
    const double scaled = input.as_float() * factor;
    if (!std::isfinite(scaled)) refuse("round wants a finite number");
    const double whole = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
    return Value::real((whole == 0 ? 0.0 : whole) /
                       factor);  // Python's are integers: there is no -0
  }
  if (input.is_integral()) return Value::integer(input.as_int());
  if (!std::isfinite(input.as_float())) return input;
  char digits[1024];
  std::snprintf(digits, sizeof(digits), "%.*f", static_cast<int>(precision), input.as_float());
  return Value::real(std::strtod(digits, nullptr));
}

Value abs_filter(Interpreter&, const Value& input, Arguments& arguments) {
  bind_arguments("abs", arguments, {});
  if (input.is(Kind::kUndefined)) refuse(input.why_undefined());
  if (input.is(Kind::kFloat)) return Value::real(std::abs(input.as_float()));
  if (!input.is_integral()) refuse("abs wants a number, found ", type_name(input));
  return input.as_int() < 0 ? negative(input) : Value::integer(input.as_int());
}

Value attr_filter(Interpreter& run, const Value& input, Arguments& arguments) {
  const auto bound = bind_arguments("attr", arguments, {"name"}, 1);
  if (!bound[0].is_text()) refuse("attr wants a name, found ", type_name(bound[0]));
  if (input.is(Kind::kDict) && !input.as<DictObject>().find(bound[0].as_text()))
    return run.attribute(input, bound[0].as_text());
  if (input.is(Kind::kDict))
    refuse("attr reads no keys of dicts; use ['", printable(bound[0].as_text()), "']");
  return run.attribute(input, bound[0].as_text());
}

constexpr Filter kFilters[] = {
    {"default", default_filter}, {"d", default_filter},   {"int", int_filter},
    {"float", float_filter},     {"round", round_filter}, {"abs", abs_filter},
    {"attr", attr_filter},       {"tojson", to_json},
};

}  // namespace

const Filter* find_filter(std::string_view name) {
  for (const Filter& filter : kFilters)
    if (filter.name == name) return &filter;
  for (auto* find : {find_text_filter, find_sequence_filter, find_choosing_filter})
    if (const Filter* found = find(name)) return found;
  return nullptr;
}

Value read_path(Interpreter& run, const Value& item, const Value& path, const Value& otherwise) {
  std::vector<Value> parts;
  if (path.is_text())
    for (const std::string& part : split(path.as_text(), '.')) {
      const bool number =
          !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == part.npos;
      parts.push_back(number ? Value::integer(std::stoll(part)) : Value::text(part));
    }
  else
    parts.push_back(path);
  Value value = item;
  for (const Value& part : parts) {
    value = run.item(value, part);
    if (value.is(Kind::kUndefined) && !otherwise.is(Kind::kMissing)) value = otherwise;
  }
  return value;
}

Value Interpreter::filter(const std::string& name, const Value& input, Arguments& arguments) {
  const Filter* found = find_filter(name);
  if (found == nullptr) refuse("there is no filter named '", printable(name), "' here");
  budget_.step();
  return found->apply(*this, input, arguments);
}

}  // namespace octavo::jinja
