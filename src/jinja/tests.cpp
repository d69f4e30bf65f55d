#include "jinja/tests.h"

#include "base/printable.h"
#include "jinja/filters.h"
#include "jinja/operators.h"
#include "jinja/python_text.h"

namespace octavo::jinja {
namespace {

template <bool (*holds)(const Value&)>
bool plain(Interpreter&, const Value& value, const Arguments& arguments) {
  bind_arguments("the test", arguments, {});
  return holds(value);
}

template <Operator sign>
bool compared(Interpreter& run, const Value& value, const Arguments& arguments) {
  if (!arguments.named.empty()) refuse("the test has no named arguments");
  const auto bound = bind_arguments("the test", arguments, {"other"}, 1);
  return compares(run.budget(), sign, value, bound[0]);
}

bool in_test(Interpreter& run, const Value& value, const Arguments& arguments) {
  const auto bound = bind_arguments("in", arguments, {"seq"}, 1);
  return contains(run.budget(), bound[0], value);
}

bool is_sequence(const Value& value) {
  return length_of(value).has_value() && !value.is(Kind::kView);
}

template <int rest>
bool parity(Interpreter& run, const Value& value, const Arguments& arguments) {
  bind_arguments("the test", arguments, {});
  return equals(run.budget(), binary(run.budget(), Operator::kMod, value, Value::integer(2)),
                Value::integer(rest));
}

bool divisible_by(Interpreter& run, const Value& value, const Arguments& arguments) {
  const auto bound = bind_arguments("divisibleby", arguments, {"num"}, 1);
  return equals(run.budget(), binary(run.budget(), Operator::kMod, value, bound[0]),
                Value::integer(0));
}

bool same_as(Interpreter&, const Value& value, const Arguments& arguments) {
  const auto bound = bind_arguments("sameas", arguments, {"other"}, 1);
  const Value& other = bound[0];
  if (value.kind() != other.kind()) return false;
  if (value.is(Kind::kNone) || value.is(Kind::kBool)) return identical(value, other);
  refuse("sameas of other values than none, true and false is not supported");
}

template <TextClass wanted>
bool has_case(Interpreter& run, const Value& value, const Arguments& arguments) {
  bind_arguments("the test", arguments, {});
  const std::string text = to_text(run.budget(), value);
  run.budget().make(text.size() * 4);
  return is_all(text, wanted);
}

template <bool filters>
bool is_name_of(Interpreter&, const Value& value, const Arguments& arguments) {
  bind_arguments("the test", arguments, {});
  if (!value.is_text()) return false;
  return filters ? find_filter(value.as_text()) != nullptr : find_test(value.as_text()) != nullptr;
}

bool is_callable(const Value& value) {
  return value.is(Kind::kCallable) || value.is(Kind::kLoop) || value.is(Kind::kUndefined);
}

constexpr Test kTests[] = {
    {"defined", plain<[](const Value& v) { return !v.is(Kind::kUndefined); }>},
    {"undefined", plain<[](const Value& v) { return v.is(Kind::kUndefined); }>},
    {"none", plain<[](const Value& v) { return v.is(Kind::kNone); }>},
    {"boolean", plain<[](const Value& v) { return v.is(Kind::kBool); }>},
    {"true", plain<[](const Value& v) { return v.is(Kind::kBool) && v.as_bool(); }>},
    {"false", plain<[](const Value& v) { return v.is(Kind::kBool) && !v.as_bool(); }>},
    {"integer", plain<[](const Value& v) { return v.is(Kind::kInt); }>},
    {"float", plain<[](const Value& v) { return v.is(Kind::kFloat); }>},
    {"number", plain<[](const Value& v) { return v.is_number(); }>},
    {"string", plain<[](const Value& v) { return v.is_text(); }>},
    {"mapping", plain<[](const Value& v) { return v.is(Kind::kDict); }>},
    {"iterable", plain<[](const Value& v) { return is_iterable(v); }>},
    {"sequence", plain<[](const Value& v) { return is_sequence(v); }>},
    {"callable", plain<[](const Value& v) { return is_callable(v); }>},
    {"escaped", plain<[](const Value& v) { return v.is_markup(); }>},
    {"upper", has_case<TextClass::kUpper>},
    {"lower", has_case<TextClass::kLower>},
    {"odd", parity<1>},
    {"even", parity<0>},
    {"divisibleby", divisible_by},
    {"sameas", same_as},
    {"in", in_test},
    {"filter", is_name_of<true>},
    {"test", is_name_of<false>},
    {"eq", compared<Operator::kEq>},
    {"equalto", compared<Operator::kEq>},
    {"==", compared<Operator::kEq>},
    {"ne", compared<Operator::kNe>},
    {"!=", compared<Operator::kNe>},
    {"lt", compared<Operator::kLt>},
    {"lessthan", compared<Operator::kLt>},
    {"<", compared<Operator::kLt>},
    {"le", compared<Operator::kLe>},
    {"<=", compared<Operator::kLe>},
    {"gt", compared<Operator::kGt>},
    {"greaterthan", compared<Operator::kGt>},
    {">", compared<Operator::kGt>},
    {"ge", compared<Operator::kGe>},
    {">=", compared<Operator::kGe>},
};

}  // namespace

const Test* find_test(std::string_view name) {
  for (const Test& test : kTests)
    if (test.name == name) return &test;
  return nullptr;
}

bool Interpreter::test(const std::string& name, const Value& input, Arguments& arguments) {
  const Test* found = find_test(name);
  if (found == nullptr) refuse("there is no test named '", printable(name), "' here");
  budget_.step();
  return found->holds(*this, input, arguments);
}

}  // namespace octavo::jinja
