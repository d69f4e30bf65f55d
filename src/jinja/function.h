#pragma once
// Functions of C++ as values.

#include <functional>

#include "jinja/value.h"

namespace octavo::jinja {

using Function = std::function<Value(Interpreter&, Arguments&)>;
Value function_value(Function function);

}  // namespace octavo::jinja
