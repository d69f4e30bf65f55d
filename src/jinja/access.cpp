// Attributes, items and calls, as Jinja's sandbox allows them.
#include "base/printable.h"
#include "jinja/interpreter.h"
#include "jinja/loop.h"
#include "jinja/methods.h"
#include "jinja/operators.h"

namespace octavo::jinja {
namespace {

Value no_attribute(const Value& object, const std::string& name) {
  return Value::undefined("'" + type_name(object) + " object' has no attribute '" +
                          printable(name) + "'");
}

// The attribute that Python's object has itself; missing when it has none.
Value own_attribute(const Value& object, const std::string& name) {
  switch (object.kind()) {
    case Kind::kNamespace: {
      const Value* found = object.as<NamespaceObject>().attributes.find(name);
      return found != nullptr ? *found : Value::missing();
    }
    case Kind::kLoop:
      return object.as<LoopObject>().attribute(name, object.shared());
    case Kind::kCallable:
      return object.as<CallableObject>().attribute(name);
    default:
      return method_of(object, name);
  }
}

Value own_item(Budget& budget, const Value& object, const Value& key) {
  if (object.is(Kind::kDict)) {
    const Value* found = is_hashable(key) ? object.as<DictObject>().find(budget, key) : nullptr;
    return found != nullptr ? *found : Value::missing();
  }
  if ((object.is_sequence() || object.is_text()) && key.is_integral())
    return item_at(budget, object, key.as_int());
  return Value::missing();
}

// Names of Python's own machinery: every object has some of them, and templates none.
bool is_internal(const std::string& name) {
  return name.size() > 4 && name.starts_with("__") && name.ends_with("__");
}

Value unsafe(const Value& object, const std::string& name) {
  return Value::undefined("access to attribute '" + printable(name) + "' of '" + type_name(object) +
                          "' object is unsafe.");
}

// Of something undefined an attribute is an error, unless Python's class for it has it.
Value attribute_of_undefined(const Value& object, const std::string& name) {
  if (name == "__class__") return unsafe(object, name);
  if (is_internal(name)) refuse(printable(name), " of an undefined value is not supported");
  refuse(object.why_undefined());
}

}  // namespace

Value Interpreter::attribute(const Value& object, const std::string& name) {
  budget_.step();
  if (object.is(Kind::kUndefined)) return attribute_of_undefined(object, name);
  const Value own = own_attribute(object, name);
  if (!own.is(Kind::kMissing)) return name.starts_with('_') ? unsafe(object, name) : own;
  if (object.is(Kind::kDict))
    if (const Value* found = object.as<DictObject>().find(name)) return *found;
  return is_internal(name) ? unsafe(object, name) : no_attribute(object, name);
}

Value Interpreter::item(const Value& object, const Value& key) {
  budget_.step();
  if (object.is(Kind::kUndefined)) refuse(object.why_undefined());
  const Value found = own_item(budget_, object, key);
  if (!found.is(Kind::kMissing)) return found;
  if (key.is_text()) {
    const std::string& name = key.as_text();
    const Value own = own_attribute(object, name);
    if (!own.is(Kind::kMissing)) return name.starts_with('_') ? unsafe(object, name) : own;
    return no_attribute(object, name);
  }
  return Value::undefined(type_name(object) + " object has no element " +
                          (key.is_number() ? repr(budget_, key) : "of " + type_name(key)));
}

Value Interpreter::call(const Value& function, Arguments& arguments) {
  budget_.step();
  if (function.is(Kind::kUndefined)) refuse(function.why_undefined());
  if (function.is(Kind::kLoop)) refuse("recursive loops are not supported");
  if (!function.is(Kind::kCallable))
    refuse("wanted a function to call, found ", type_name(function));
  // Holds the function while it runs, which a reference would not.
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
  const std::shared_ptr<Object> held = function.shared();
  return static_cast<CallableObject&>(*held).call(*this, arguments);
}

}  // namespace octavo::jinja
