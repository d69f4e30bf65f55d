#pragma once
// Variables of the environment that a test sets for itself, as they were again when it ends.

#include <stdlib.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace octavo {

class OwnVariables {
 public:
  /// They begin unset.
  explicit OwnVariables(std::initializer_list<const char*> names) {
    for (const char* name : names) {
      const char* value = ::getenv(name);
      before_.emplace_back(name,
                           value != nullptr ? std::optional<std::string>(value) : std::nullopt);
      ::unsetenv(name);
    }
  }
  OwnVariables(const OwnVariables&) = delete;
  OwnVariables& operator=(const OwnVariables&) = delete;
  ~OwnVariables() {
    for (const auto& [name, value] : before_)
      if (value)
        ::setenv(name.c_str(), value->c_str(), 1);
      else
        ::unsetenv(name.c_str());
  }

 private:
  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

}  // namespace octavo
