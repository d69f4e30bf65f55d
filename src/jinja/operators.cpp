#include "jinja/operators.h"

#include <cmath>
#include <limits>

#include "jinja/python_text.h"

namespace octavo::jinja {
namespace {

constexpr const char* kSigns[] = {
    "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};

const char* spelled(Operator sign) {
  return kSigns[static_cast<int>(sign)];
}

[[noreturn]] void too_large(Operator sign) {
  refuse("the result of ", spelled(sign),
         " is no integer of 64 bits: larger ones are not supported");
}

Value repeated(Budget& budget, const Value& value, int64_t times) {
  const auto count = static_cast<uint64_t>(std::max<int64_t>(times, 0));
  const uint64_t size = value.is_text() ? value.as_text().size() : value.items().size();
  if (size > 0 && count > (uint64_t{1} << 40) / size) budget.make(UINT64_MAX / 2);
  if (value.is_text()) {
    budget.make(size * count);
    std::string out;
    out.reserve(size * count);
    for (uint64_t i = 0; i < count && size > 0; ++i) out += value.as_text();
    Value made = Value::text(std::move(out));
    return value.is_markup() ? made.marked() : made;
  }
  budget.make_items(size * count);
  std::vector<Value> items;
  for (uint64_t i = 0; i < count && size > 0; ++i)
    items.insert(items.end(), value.items().begin(), value.items().end());
  return make_list(budget, std::move(items), value.kind());
}

bool is_repeatable(const Value& value) {
  return value.is_text() || value.is(Kind::kList) || value.is(Kind::kTuple);
}

Value integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) refuse("0 cannot be raised to a negative power");
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result))
      too_large(Operator::kPow);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) too_large(Operator::kPow);
  }
  return Value::integer(result);
}

Value integers(Operator sign, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (sign) {
    case Operator::kAdd:
      if (__builtin_add_overflow(a, b, &result)) too_large(sign);
      return Value::integer(result);
    case Operator::kSub:
      if (__builtin_sub_overflow(a, b, &result)) too_large(sign);
      return Value::integer(result);
    case Operator::kMul:
      if (__builtin_mul_overflow(a, b, &result)) too_large(sign);
      return Value::integer(result);
    case Operator::kPow:
      return integer_power(a, b);
    default:
      break;
  }
  if (b == 0) refuse("division by zero");
  if (sign == Operator::kDiv) {
    constexpr int64_t kExact = int64_t{1} << 53;
    if (std::max(a, b) > kExact || std::min(a, b) < -kExact)
      refuse("the quotient of integers above 2^53 is not supported");
    return Value::real(static_cast<double>(a) / static_cast<double>(b));
  }
  if (a == std::numeric_limits<int64_t>::min() && b == -1) {
    if (sign == Operator::kFloorDiv) too_large(sign);
    return Value::integer(0);
  }
  const int64_t remainder = a % b, quotient = a / b;
  const bool adjust = remainder != 0 && (remainder < 0) != (b < 0);
  return Value::integer(sign == Operator::kFloorDiv ? quotient - (adjust ? 1 : 0)
                                                    : remainder + (adjust ? b : 0));
}

Value float_power(double a, double b) {
  if (a == 0 && b < 0) refuse("0.0 cannot be raised to a negative power");
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b))
    refuse("complex numbers are not supported");
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) refuse("the power is too large");
  return Value::real(result);
}

// As CPython's float_floor_div and float_rem.
Value float_division(Operator sign, double a, double b) {
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0) {
    if ((b < 0) != (remainder < 0)) {
      remainder += b;
      quotient -= 1;
    }
  } else {
    remainder = std::copysign(0.0, b);
  }
  if (sign == Operator::kMod) return Value::real(remainder);
  if (quotient == 0) return Value::real(std::copysign(0.0, a / b));
  const double whole = std::floor(quotient);
  return Value::real(quotient - whole > 0.5 ? whole + 1 : whole);
}

Value floats(Operator sign, double a, double b) {
  switch (sign) {
    case Operator::kAdd:
      return Value::real(a + b);
    case Operator::kSub:
      return Value::real(a - b);
    case Operator::kMul:
      return Value::real(a * b);
    case Operator::kPow:
      return float_power(a, b);
    default:
      if (b == 0) refuse("division by zero");
      return sign == Operator::kDiv ? Value::real(a / b) : float_division(sign, a, b);
  }
}

Value joined(Budget& budget, const Value& a, const Value& b) {
  if (a.is_text()) {
    budget.make(a.as_text().size() + b.as_text().size());
    if (!a.is_markup() && !b.is_markup()) return Value::text(a.as_text() + b.as_text());
    const auto escaped = [](const Value& value) {
      return value.is_markup() ? value.as_text() : escape_html(value.as_text());
    };
    return make_text(budget, escaped(a) + escaped(b)).marked();
  }
  std::vector<Value> items = a.items();
  items.insert(items.end(), b.items().begin(), b.items().end());
  return make_list(budget, std::move(items), a.kind());
}

// Python's slice.indices().
struct Indices {
  int64_t begin, end, step;
};
Indices indices_of(int64_t size, const Value& begin, const Value& end, const Value& step) {
  for (const Value* value : {&begin, &end, &step})
    if (!value->is(Kind::kNone) && !value->is_integral())
      refuse("wanted integers in a slice, found ", type_name(*value));
  Indices made{0, 0, step.is(Kind::kNone) ? 1 : step.as_int()};
  if (made.step == 0) refuse("wanted a slice with a step that is not 0");
  const int64_t lowest = made.step < 0 ? -1 : 0, highest = made.step < 0 ? size - 1 : size;
  const auto clamp = [&](const Value& value, int64_t otherwise) {
    if (value.is(Kind::kNone)) return otherwise;
    int64_t index = value.as_int();
    if (index < 0) index = index < -size ? lowest - size : index;
    if (index < 0) index += size;
    return std::clamp(index, lowest, highest);
  };
  made.begin = clamp(begin, made.step < 0 ? highest : lowest);
  made.end = clamp(end, made.step < 0 ? lowest : highest);
  return made;
}

template <typename Take>
void each_index(const Indices& indices, const Take& take) {
  for (__int128 i = indices.begin; indices.step > 0 ? i < indices.end : i > indices.end;
       i += indices.step)
    take(static_cast<size_t>(i));
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '\'')
      out += "&#39;";
    else if (c == '"')
      out += "&#34;";
    else
      out += c;
  }
  return out;
}

Value binary(Budget& budget, Operator sign, const Value& a, const Value& b) {
  budget.step();
  if (sign == Operator::kMod && a.is_text()) {
    if (a.is_markup()) refuse("% of text that is marked as safe is not supported");
    return make_text(budget, percent_format(budget, a.as_text(), b));
  }
  for (const Value* value : {&a, &b})
    if (value->is(Kind::kUndefined)) refuse(value->why_undefined());
  if (a.is_integral() && b.is_integral()) return integers(sign, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return floats(sign, a.as_float(), b.as_float());
  if (sign == Operator::kAdd && a.kind() == b.kind() && is_repeatable(a))
    return joined(budget, a, b);
  if (sign == Operator::kMul && is_repeatable(a) && b.is_integral())
    return repeated(budget, a, b.as_int());
  if (sign == Operator::kMul && is_repeatable(b) && a.is_integral())
    return repeated(budget, b, a.as_int());
  if (sign == Operator::kSub && a.is(Kind::kView) && b.is(Kind::kView))
    refuse("sets are not supported");
  refuse("'", spelled(sign), "' is not for ", type_name(a), " and ", type_name(b));
}

bool compares(Budget& budget, Operator sign, const Value& a, const Value& b) {
  switch (sign) {
    case Operator::kEq:
      return equals(budget, a, b);
    case Operator::kNe:
      return !equals(budget, a, b);
    case Operator::kIn:
      return contains(budget, b, a);
    case Operator::kNotIn:
      return !contains(budget, b, a);
    default:
      break;
  }
  const int order = compare(budget, a, b, spelled(sign));
  if (order == 2) return false;
  switch (sign) {
    case Operator::kLt:
      return order < 0;
    case Operator::kLe:
      return order <= 0;
    case Operator::kGt:
      return order > 0;
    default:
      return order >= 0;
  }
}

Value negative(const Value& value) {
  if (value.is(Kind::kUndefined)) refuse(value.why_undefined());
  if (value.is_integral()) return integers(Operator::kSub, 0, value.as_int());
  if (value.is(Kind::kFloat)) return Value::real(-value.as_float());
  refuse("- is not for ", type_name(value));
}

Value positive(const Value& value) {
  if (value.is(Kind::kUndefined)) refuse(value.why_undefined());
  if (value.is_integral()) return Value::integer(value.as_int());
  if (value.is(Kind::kFloat)) return value;
  refuse("+ is not for ", type_name(value));
}

bool contains(Budget& budget, const Value& container, const Value& value) {
  if (container.is_text()) {
    if (!value.is_text()) refuse("wanted text to look for in text, found ", type_name(value));
    budget.step(1 + container.as_text().size() / 64);
    return container.as_text().find(value.as_text()) != std::string::npos;
  }
  const bool keys =
      container.is(Kind::kView) && container.as<ViewObject>().what == ViewObject::What::kKeys;
  if (container.is(Kind::kDict) || keys) {
    if (!is_hashable(value)) refuse("wanted a key, found ", type_name(value));
    const DictObject& dict = keys ? *container.as<ViewObject>().dict : container.as<DictObject>();
    return dict.find(budget, value) != nullptr;
  }
  if (container.is(Kind::kIterator)) {
    auto& iterator = container.as<IteratorObject>();
    while (iterator.next < iterator.items.size())
      if (equals(budget, iterator.items[iterator.next++], value)) return true;
    return false;
  }
  if (container.is_sequence()) {
    for (const Value& item : container.items())
      if (identical(item, value) || equals(budget, item, value)) return true;
    return false;
  }
  for (const Value& item : iterate(budget, container))
    if (identical(item, value) || equals(budget, item, value)) return true;
  return false;
}

Value slice(Budget& budget, const Value& container, const Value& begin, const Value& end,
            const Value& step) {
  if (container.is(Kind::kUndefined)) refuse(container.why_undefined());
  if (container.is_text()) {
    const std::string& text = container.as_text();
    budget.make(text.size());
    if (container.is_markup()) refuse("a slice of text that is marked as safe is not supported");
    const std::u32string points = code_points(text);
    std::u32string out;
    each_index(indices_of(static_cast<int64_t>(points.size()), begin, end, step),
               [&](size_t i) { out += points[i]; });
    return make_text(budget, to_utf8(out));
  }
  // Jinja2 gives nothing for constants here, and fails for the rest.
  if (!container.is_sequence()) refuse("a slice of ", type_name(container), " is not supported");
  const auto& items = container.items();
  const Indices indices = indices_of(static_cast<int64_t>(items.size()), begin, end, step);
  if (container.is(Kind::kRange)) {
    const auto& range = container.as<SequenceObject>();
    const auto narrow = [](__int128 value) {
      if (value > INT64_MAX || value < INT64_MIN) too_large(Operator::kMul);
      return static_cast<int64_t>(value);
    };
    const auto at = [&](__int128 i) { return narrow(range.start + i * range.step); };
    return make_range(budget, at(indices.begin), at(indices.end),
                      narrow(static_cast<__int128>(range.step) * indices.step));
  }
  std::vector<Value> out;
  each_index(indices, [&](size_t i) { out.push_back(items[i]); });
  return make_list(budget, std::move(out), container.kind());
}

Value item_at(Budget& budget, const Value& sequence, int64_t index) {
  if (sequence.is_text()) {
    const std::string& text = sequence.as_text();
    budget.step(1 + text.size() / 64);
    if (is_ascii(text)) {
      const auto size = static_cast<int64_t>(text.size());
      if (index < 0) index += size;
      return index < 0 || index >= size
                 ? Value::missing()
                 : Value::text(std::string(1, text[static_cast<size_t>(index)]));
    }
    budget.make(text.size());
    const std::u32string points = code_points(text);
    const auto size = static_cast<int64_t>(points.size());
    if (index < 0) index += size;
    return index < 0 || index >= size
               ? Value::missing()
               : Value::text(to_utf8({&points[static_cast<size_t>(index)], 1}));
  }
  const auto& items = sequence.items();
  const auto size = static_cast<int64_t>(items.size());
  if (index < 0) index += size;
  return index < 0 || index >= size ? Value::missing() : items[static_cast<size_t>(index)];
}

}  // namespace octavo::jinja
