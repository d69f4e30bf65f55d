#pragma once
// What an exception says in one line: what follows are backtraces and details.

#include <string>
#include <string_view>

namespace octavo {

inline std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

}  // namespace octavo
