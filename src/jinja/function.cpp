#include "jinja/function.h"

#include <algorithm>

#include "base/printable.h"
#include "jinja/interpreter.h"

namespace octavo::jinja {
namespace {

struct NativeFunction : CallableObject {
  Function function;
  Value call(Interpreter& interpreter, Arguments& arguments) override {
    return function(interpreter, arguments);
  }
  std::string description() const override { return ""; }
};

}  // namespace

Value function_value(Function function) {
  auto made = std::make_shared<NativeFunction>();
  made->function = std::move(function);
  return Value::object(Kind::kCallable, std::move(made));
}

std::vector<Value> bind_arguments(std::string_view function, const Arguments& arguments,
                                  std::initializer_list<const char*> names, size_t required) {
  std::vector<Value> bound(names.size(), Value::missing());
  if (arguments.positional.size() > names.size())
    refuse(function, " takes at most ", names.size(), " arguments, found ",
           arguments.positional.size());
  std::copy(arguments.positional.begin(), arguments.positional.end(), bound.begin());
  for (const auto& [name, value] : arguments.named) {
    size_t at = 0;
    for (const char* known : names) {
      if (name == known) break;
      ++at;
    }
    if (at == names.size()) refuse(function, " has no argument ", printable(name));
    if (!bound[at].is(Kind::kMissing))
      refuse(function, ": the argument ", printable(name), " is given twice");
    bound[at] = value;
  }
  for (size_t i = 0; i < required; ++i)
    if (bound[i].is(Kind::kMissing)) refuse(function, " wants the argument ", names.begin()[i]);
  return bound;
}

}  // namespace octavo::jinja
