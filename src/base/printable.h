#pragma once
// Untrusted text for a terminal.

#include <string>
#include <string_view>

namespace octavo {

// Control characters, also those of UTF-8 (C2 80 to C2 9F), as \x1b; line ends are kept when
// `keep_lines`. Cut to `most` bytes, with … where something was left out.
std::string printable(std::string_view text, size_t most = 80, bool keep_lines = false);

}  // namespace octavo
