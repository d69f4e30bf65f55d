#pragma once
// Names of packages and fields are compared without regard to case; only ASCII letters have one.

#include <string>
#include <string_view>

namespace octavo::python_env {

inline std::string ascii_lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

}  // namespace octavo::python_env
