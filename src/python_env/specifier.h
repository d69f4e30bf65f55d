#pragma once
// ">=2.6.0a0,<2.8.0": which versions a requirement allows, by the rules of PEP 440. A pre-release
// that is installed counts as allowed, as `pip check` has it.

#include <string>
#include <string_view>
#include <vector>

#include "python_env/version.h"

namespace octavo::python_env {

struct Specifier {
  std::string_view comparison;  // "==", "~=", "<", …: of the table in specifier.cpp
  std::string text;             // behind it, as it stands
  Version version;
  bool wildcard = false;  // "==2.8.*"
};
using Specifiers = std::vector<Specifier>;

// Comma-separated; none of an empty text. No value when a part is not a specifier.
std::optional<Specifiers> parse_specifiers(std::string_view text);

bool allows(const Specifier& specifier, const Version& version);
bool allows(const Specifiers& specifiers, const Version& version);

}  // namespace octavo::python_env
