#pragma once
// Methods of Python's values.

#include "jinja/interpreter.h"

namespace octavo::jinja {

// x.name as a function; undefined for one that changes its object, which the sandbox does not
// allow; missing for a name that is no attribute.
Value method_of(const Value& object, const std::string& name);

// Methods of a type: those of a str are many.
struct Method {
  std::string_view name;
  Value (*call)(Interpreter&, const Value& self, const Arguments&);
};
const Method* find_text_method(std::string_view name);

// str.format
std::string brace_format(Interpreter& interpreter, const std::string& text,
                         const Arguments& arguments);

}  // namespace octavo::jinja
