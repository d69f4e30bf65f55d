#pragma once
// Strings as Python has them: counted in code points, with its white space, cases and spelling.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::jinja {

bool is_ascii(std::string_view text);
std::u32string code_points(std::string_view utf8);
std::string to_utf8(std::u32string_view text);
size_t length_in_points(std::string_view utf8);

bool is_space(uint32_t point);
bool is_printable(uint32_t point);
// Letters and digits: \w of a name.
bool is_word(uint32_t point);
bool is_identifier(std::string_view utf8);

enum class Ends { kBoth, kLeft, kRight };
std::string_view strip(std::string_view text, Ends ends);
std::string_view strip(std::string_view text, std::string_view characters, Ends ends);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);  // str.title(), not the filter

// str.isupper() and the like; false for an empty text.
enum class TextClass { kUpper, kLower, kSpace, kDigit, kAlpha, kAlnum };
bool is_all(std::string_view text, TextClass wanted);

std::string repr_text(std::string_view text);  // repr() of a str
std::string float_text(double value);          // repr() of a float

// str.splitlines()
std::vector<std::string> split_lines(std::string_view text, bool keep_ends);
// Every `old`, or the first `most` of them when that is not negative.
std::string replace_all(std::string_view text, std::string_view old, std::string_view with,
                        int64_t most);
size_t count_of(std::string_view text, std::string_view part);

}  // namespace octavo::jinja
