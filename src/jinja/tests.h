#pragma once
// Jinja's tests: x is name.

#include "jinja/interpreter.h"

namespace octavo::jinja {

struct Test {
  std::string_view name;
  bool (*holds)(Interpreter&, const Value& value, const Arguments&);
};
// Null for a name that is none.
const Test* find_test(std::string_view name);

}  // namespace octavo::jinja
