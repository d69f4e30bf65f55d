// == and < of Python's values.
#include <cmath>
#include <compare>

#include "jinja/value.h"

namespace octavo::jinja {
namespace {

// Exactly, as Python does: a double may lie between two integers that become the same double.
std::partial_ordering order_of(int64_t a, double b) {
  if (std::isnan(b)) return std::partial_ordering::unordered;
  if (b >= 9223372036854775808.0) return std::partial_ordering::less;
  if (b < -9223372036854775808.0) return std::partial_ordering::greater;
  const double whole = std::floor(b);
  const auto rounded = static_cast<int64_t>(whole);
  if (a != rounded) return a <=> rounded;
  return whole < b ? std::partial_ordering::less : std::partial_ordering::equivalent;
}

std::partial_ordering order_of_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.as_int() <=> b.as_int();
  if (a.is_integral()) return order_of(a.as_int(), b.as_float());
  if (b.is_integral()) return 0 <=> order_of(b.as_int(), a.as_float());
  return a.as_float() <=> b.as_float();
}

bool same_dicts(Budget& budget, const DictObject& a, const DictObject& b) {
  if (a.entries().size() != b.entries().size()) return false;
  for (const auto& [key, value] : a.entries()) {
    budget.step();
    const Value* other = b.find(budget, key);
    if (other == nullptr || !equals(budget, value, *other)) return false;
  }
  return true;
}

bool same_items(Budget& budget, const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!identical(a[i], b[i]) && !equals(budget, a[i], b[i])) return false;
  return true;
}

bool same_views(Budget& budget, const Value& a, const Value& b) {
  const auto &left = a.as<ViewObject>(), &right = b.as<ViewObject>();
  if (left.what != right.what || left.what == ViewObject::What::kValues) return identical(a, b);
  if (left.what == ViewObject::What::kItems) return same_dicts(budget, *left.dict, *right.dict);
  if (left.dict->entries().size() != right.dict->entries().size()) return false;
  for (const auto& entry : left.dict->entries())
    if (right.dict->find(budget, entry.first) == nullptr) return false;
  return true;
}

}  // namespace

bool identical(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  if (a.shared() || b.shared()) return a.shared() == b.shared();
  return a.is(Kind::kFloat) ? false : a.as_int() == b.as_int();
}

bool equals(Budget& budget, const Value& a, const Value& b) {
  budget.step();
  if (a.is_number() && b.is_number()) return order_of_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      budget.step(a.as_text().size() / 256);
      return a.as_text() == b.as_text();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      return same_items(budget, a.items(), b.items());
    case Kind::kDict:
      return same_dicts(budget, a.as<DictObject>(), b.as<DictObject>());
    case Kind::kView:
      return same_views(budget, a, b);
    default:
      return identical(a, b);
  }
}

int compare(Budget& budget, const Value& a, const Value& b, const char* sign) {
  budget.step();
  for (const Value* value : {&a, &b})
    if (value->is(Kind::kUndefined)) refuse(value->why_undefined());
  if (a.is_number() && b.is_number()) {
    const auto order = order_of_numbers(a, b);
    return order == std::partial_ordering::unordered ? 2 : order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if (a.is_text() && b.is_text()) {
    const int order = a.as_text().compare(b.as_text());  // UTF-8 keeps the order of code points
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if (a.kind() != b.kind() || (!a.is(Kind::kList) && !a.is(Kind::kTuple)))
    refuse("'", sign, "' is not for ", type_name(a), " and ", type_name(b));
  const auto &left = a.items(), &right = b.items();
  for (size_t i = 0; i < left.size() && i < right.size(); ++i)
    if (!identical(left[i], right[i]) && !equals(budget, left[i], right[i]))
      return compare(budget, left[i], right[i], sign);
  return left.size() < right.size() ? -1 : left.size() > right.size() ? 1 : 0;
}

}  // namespace octavo::jinja
