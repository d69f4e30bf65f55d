#include "jinja/methods.h"

#include <algorithm>

#include "jinja/function.h"

namespace octavo::jinja {
namespace {

// What changes an object, which Jinja's sandbox does not allow.
constexpr std::string_view kListChanges[] = {"append", "clear",  "extend",  "insert",
                                             "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};
// Attributes of numbers that templates have no use for.
constexpr std::string_view kNumberNames[] = {
    "real",       "imag",      "conjugate", "numerator",  "denominator",
    "bit_length", "bit_count", "to_bytes",  "from_bytes", "as_integer_ratio",
    "is_integer", "hex",       "fromhex"};

template <size_t N>
bool is_in(std::string_view name, const std::string_view (&names)[N]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

Value view_of(const Value& self, ViewObject::What what) {
  auto view = std::make_shared<ViewObject>();
  view->what = what;
  view->dict = std::static_pointer_cast<DictObject>(self.shared());
  return Value::object(Kind::kView, std::move(view));
}

void no_arguments(const char* name, const Arguments& arguments) {
  if (!arguments.positional.empty() || !arguments.named.empty())
    refuse(name, " takes no arguments");
}

constexpr Method kDictMethods[] = {
    {"items",
     [](Interpreter&, const Value& self, const Arguments& a) {
       return no_arguments("items", a), view_of(self, ViewObject::What::kItems);
     }},
    {"keys",
     [](Interpreter&, const Value& self, const Arguments& a) {
       return no_arguments("keys", a), view_of(self, ViewObject::What::kKeys);
     }},
    {"values",
     [](Interpreter&, const Value& self, const Arguments& a) {
       return no_arguments("values", a), view_of(self, ViewObject::What::kValues);
     }},
    {"copy", [](Interpreter&, const Value& self,
                const Arguments& a) { return no_arguments("copy", a), self; }},
    {"get",
     [](Interpreter& run, const Value& self, const Arguments& arguments) {
       if (!arguments.named.empty()) refuse("get has no named arguments");
       const auto bound = bind_arguments("get", arguments, {"key", "default"}, 1);
       if (!is_hashable(bound[0])) refuse("wanted a key, found ", type_name(bound[0]));
       const Value* found = self.as<DictObject>().find(run.budget(), bound[0]);
       return found != nullptr ? *found : bound[1].is(Kind::kMissing) ? Value::none() : bound[1];
     }},
};

Value index_of(Interpreter& run, const Value& self, const Arguments& arguments) {
  const auto bound = bind_arguments("index", arguments, {"value"}, 1);
  for (size_t i = 0; i < self.items().size(); ++i)
    if (equals(run.budget(), self.items()[i], bound[0]))
      return Value::integer(static_cast<int64_t>(i));
  refuse("index: the value is not in the list");
}

constexpr Method kSequenceMethods[] = {
    {"index", index_of},
    {"count",
     [](Interpreter& run, const Value& self, const Arguments& arguments) {
       const auto bound = bind_arguments("count", arguments, {"value"}, 1);
       int64_t count = 0;
       for (const Value& item : self.items()) count += equals(run.budget(), item, bound[0]) ? 1 : 0;
       return Value::integer(count);
     }},
};

Value bound_method(const Value& object, const Method& method) {
  auto* call = method.call;
  return function_value([object, call](Interpreter& run, Arguments& arguments) {
    return call(run, object, arguments);
  });
}

template <size_t N>
Value method_among(const Value& object, const std::string& name, const Method (&methods)[N]) {
  for (const Method& method : methods)
    if (method.name == name) return bound_method(object, method);
  return Value::missing();
}

Value unsafe_change(const Value& object, const std::string& name) {
  return Value::undefined("access to attribute '" + name + "' of '" + type_name(object) +
                          "' object is unsafe.");
}

}  // namespace

Value method_of(const Value& object, const std::string& name) {
  if (object.is_text()) {
    const Method* method = find_text_method(name);
    if (method != nullptr && object.is_markup())
      refuse("methods of text that is marked as safe are not supported");
    return method == nullptr ? Value::missing() : bound_method(object, *method);
  }
  if (object.is(Kind::kDict)) {
    if (is_in(name, kDictChanges)) return unsafe_change(object, name);
    if (name == "fromkeys") refuse("fromkeys of dicts is not supported");
    return method_among(object, name, kDictMethods);
  }
  if (object.is_sequence()) {
    if (object.is(Kind::kList) && is_in(name, kListChanges)) return unsafe_change(object, name);
    if (object.is(Kind::kList) && name == "copy")
      return function_value([object](Interpreter&, Arguments& arguments) {
        return no_arguments("copy", arguments), object;
      });
    if (object.is(Kind::kRange) && (name == "start" || name == "stop" || name == "step"))
      refuse("the attribute ", name, " of ranges is not supported");
    return method_among(object, name, kSequenceMethods);
  }
  if (object.is_number() && is_in(name, kNumberNames))
    refuse("the attribute ", name, " of numbers is not supported");
  return Value::missing();
}

}  // namespace octavo::jinja
