#include "jinja/macro.h"

#include <algorithm>

#include "base/printable.h"
#include "jinja/python_text.h"

namespace octavo::jinja {

Value macro_value(const Stmt& statement, const FramePtr& frame) {
  auto made = std::make_shared<MacroObject>();
  made->statement = &statement;
  made->frame = frame;
  return Value::object(Kind::kCallable, std::move(made));
}

Value MacroObject::call(Interpreter& interpreter, Arguments& arguments) {
  return interpreter.text(interpreter.run_macro(*statement, frame, arguments));
}

std::string MacroObject::description() const {
  return statement->kind == Stmt::Kind::kMacro
             ? "<Macro " + repr_text(statement->signature.name) + ">"
             : "<Macro anonymous>";
}

Value MacroObject::attribute(std::string_view name) const {
  if (name == "name")
    return statement->kind == Stmt::Kind::kMacro ? Value::text(statement->signature.name)
                                                 : Value::none();
  for (const char* other :
       {"arguments", "catch_kwargs", "catch_varargs", "caller", "explicit_caller"})
    if (name == other) refuse("the attribute ", other, " of macros is not supported");
  return Value::missing();
}

std::string Interpreter::run_macro(const Stmt& statement, const FramePtr& frame,
                                   Arguments& arguments) {
  const FramePtr inner = new_frame(*statement.scope, frame);
  std::string text;
  fill_parameters(statement, inner, arguments);
  std::string* const before = std::exchange(out_, &text);
  const Signature& signature = statement.signature;
  enter(*inner);
  const size_t plain = signature.parameters.size() - signature.defaults.size();
  for (size_t i = 0; i < signature.parameters.size(); ++i) {
    Value& value = inner->slots[static_cast<size_t>(inner->scope->slot(signature.parameters[i]))];
    if (!value.is(Kind::kMissing)) continue;
    Value made = i < plain ? Value::undefined("parameter '" + printable(signature.parameters[i]) +
                                              "' was not provided")
                           : evaluate(*signature.defaults[i - plain], inner);
    inner->slots[static_cast<size_t>(inner->scope->slot(signature.parameters[i]))] =
        std::move(made);
  }
  run(statement.bodies[0], inner);
  out_ = before;
  return text;
}

// As jinja2.runtime.Macro does it.
void Interpreter::fill_parameters(const Stmt& statement, const FramePtr& frame,
                                  Arguments& arguments) {
  const Signature& signature = statement.signature;
  const auto slot = [&](const std::string& name) -> Value& {
    return frame->slots[static_cast<size_t>(frame->scope->slot(name))];
  };
  const auto take_named = [&](const std::string& name) {
    auto& named = arguments.named;
    const auto found = std::find_if(named.begin(), named.end(),
                                    [&](const auto& one) { return one.first == name; });
    if (found == named.end()) return Value::missing();
    Value value = std::move(found->second);
    named.erase(found);
    return value;
  };
  const size_t count = signature.parameters.size();
  const size_t given = std::min(count, arguments.positional.size());
  for (size_t i = 0; i < count; ++i)
    slot(signature.parameters[i]) =
        i < given ? arguments.positional[i] : take_named(signature.parameters[i]);
  if (signature.wants_caller && !signature.explicit_caller) {
    const Value caller = take_named("caller");
    const bool has = !caller.is(Kind::kMissing) && !caller.is(Kind::kNone);
    slot("caller") = has ? caller : Value::undefined("No caller defined");
  }
  if (signature.wants_named) {
    auto dict = std::make_shared<DictObject>();
    for (auto& [name, value] : arguments.named) dict->set(budget_, text(name), value);
    slot("kwargs") = make_dict(std::move(dict));
  } else if (!arguments.named.empty()) {
    refuse("the macro ", signature.name, " has no parameter ", printable(arguments.named[0].first));
  }
  if (signature.wants_positional)
    slot("varargs") = make_list(budget_,
                                {arguments.positional.begin() + static_cast<std::ptrdiff_t>(given),
                                 arguments.positional.end()},
                                Kind::kTuple);
  else if (arguments.positional.size() > count)
    refuse("the macro ", signature.name, " takes at most ", count, " arguments, found ",
           arguments.positional.size());
}

}  // namespace octavo::jinja
