#pragma once
// Untrusted text inside markup.

#include <string>
#include <string_view>

namespace octavo::chart {

// Safe in HTML and XML, between tags and inside quotes: markup becomes entities; bytes that are not
// UTF-8 and characters that XML forbids become U+FFFD.
std::string escaped(std::string_view text);

// The length in bytes of the well-formed UTF-8 character at the start of `text`, 0 when there is
// none.
size_t character_at(std::string_view text);

}  // namespace octavo::chart
