#pragma once
// Strings of a template: Python's escapes.

#include <string>
#include <string_view>

namespace octavo::jinja {

// What stands between the quotes. Returns what is wrong with it, "" for nothing.
std::string unescape(std::string_view spelled, std::string& out);

}  // namespace octavo::jinja
