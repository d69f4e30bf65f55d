#pragma once
// Variables of the environment.

#include <cstdlib>
#include <string>
#include <string_view>

namespace octavo {

/// Empty when it is not set.
inline std::string environment_variable(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  return value != nullptr ? value : "";
}

}  // namespace octavo
