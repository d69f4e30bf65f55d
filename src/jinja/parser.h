#pragma once
// Tokens to a tree. What of Jinja is not done here (inheritance, imports, recursive loops) is
// refused by name.

#include <string_view>

#include "jinja/tree.h"

namespace octavo::jinja {

Tree parse(std::string_view source);

}  // namespace octavo::jinja
