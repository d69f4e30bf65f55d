#include "jinja/python_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace octavo::jinja {
namespace {

utf8proc_category_t category(uint32_t point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(point));
}

bool is_letter(uint32_t point) {
  const auto c = category(point);
  return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}
bool is_upper_point(uint32_t point) {
  return utf8proc_isupper(static_cast<utf8proc_int32_t>(point)) != 0;
}
bool is_lower_point(uint32_t point) {
  return utf8proc_islower(static_cast<utf8proc_int32_t>(point)) != 0;
}
bool is_cased(uint32_t point) {
  return is_upper_point(point) || is_lower_point(point) || category(point) == UTF8PROC_CATEGORY_LT;
}

// Of Unicode's SpecialCasing: letters that become several.
struct Expansion {
  char32_t from;
  std::u32string_view upper, title;
};
constexpr Expansion kExpansions[] = {
    {U'\u00DF', U"SS", U"Ss"},
    {U'\uFB00', U"FF", U"Ff"},
    {U'\uFB01', U"FI", U"Fi"},
    {U'\uFB02', U"FL", U"Fl"},
    {U'\uFB03', U"FFI", U"Ffi"},
    {U'\uFB04', U"FFL", U"Ffl"},
    {U'\uFB05', U"ST", U"St"},
    {U'\uFB06', U"ST", U"St"},
    {U'\u0149', U"\u02BCN", U"\u02BCN"},
    {U'\u01F0', U"J\u030C", U"J\u030C"},
    {U'\u0587', U"\u0535\u0552", U"\u0535\u0582"},
};

void append_upper(char32_t point, bool as_title, std::u32string& out) {
  for (const Expansion& expansion : kExpansions)
    if (expansion.from == point) {
      out += as_title ? expansion.title : expansion.upper;
      return;
    }
  const auto code = static_cast<utf8proc_int32_t>(point);
  out += static_cast<char32_t>(as_title ? utf8proc_totitle(code) : utf8proc_toupper(code));
}

// A sigma at the end of a word has another small letter.
bool is_final_sigma(std::u32string_view text, size_t at) {
  const bool before = at > 0 && is_cased(text[at - 1]);
  return before && (at + 1 == text.size() || !is_cased(text[at + 1]));
}

void append_lower(std::u32string_view text, size_t at, std::u32string& out) {
  const char32_t point = text[at];
  if (point == U'\u0130')
    out += U"i\u0307";
  else if (point == U'\u03A3')
    out += is_final_sigma(text, at) ? U'\u03C2' : U'\u03C3';
  else
    out += static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point)));
}

template <typename IsEnd>
std::string_view strip_if(std::string_view text, Ends ends, const IsEnd& is_end) {
  while (ends != Ends::kRight && !text.empty()) {
    const tokenizer::CodePoint point = tokenizer::decode_utf8(text.data());
    if (!is_end(point.value)) break;
    text.remove_prefix(point.length);
  }
  while (ends != Ends::kLeft && !text.empty()) {
    size_t at = text.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    if (!is_end(tokenizer::decode_utf8(text.data() + at).value)) break;
    text.remove_suffix(text.size() - at);
  }
  return text;
}

void append_hex(uint32_t value, int digits, std::string& out) {
  for (int i = digits - 1; i >= 0; --i) out += "0123456789abcdef"[(value >> (4 * i)) & 15];
}

void append_quoted(uint32_t point, char quote, std::string& out) {
  constexpr std::array<std::pair<uint32_t, const char*>, 4> kNamed = {
      {{'\n', "\\n"}, {'\r', "\\r"}, {'\t', "\\t"}, {'\\', "\\\\"}}};
  for (const auto& [named, spelling] : kNamed)
    if (point == named) {
      out += spelling;
      return;
    }
  if (point == static_cast<unsigned char>(quote)) {
    out += '\\';
    out += quote;
  } else if (is_printable(point)) {
    append_utf8(point, out);
  } else {
    out += point < 0x100 ? "\\x" : point < 0x10000 ? "\\u" : "\\U";
    append_hex(point, point < 0x100 ? 2 : point < 0x10000 ? 4 : 8, out);
  }
}

bool is_line_end(uint32_t point) {
  return (point >= '\n' && point <= '\r') || (point >= 0x1C && point <= 0x1E) || point == 0x85 ||
         point == 0x2028 || point == 0x2029;
}

}  // namespace

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::u32string code_points(std::string_view utf8) {
  std::u32string out;
  out.reserve(utf8.size());
  for (size_t i = 0; i < utf8.size();) {
    const tokenizer::CodePoint point = tokenizer::decode_utf8(utf8.data() + i);
    out += static_cast<char32_t>(point.value);
    i += point.length;
  }
  return out;
}

std::string to_utf8(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t point : text) append_utf8(point, out);
  return out;
}

size_t length_in_points(std::string_view utf8) {
  return static_cast<size_t>(std::count_if(utf8.begin(), utf8.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

bool is_space(uint32_t point) {
  return (point >= 9 && point <= 13) || (point >= 0x1C && point <= 0x20) || point == 0x85 ||
         point == 0xA0 || point == 0x1680 || (point >= 0x2000 && point <= 0x200A) ||
         point == 0x2028 || point == 0x2029 || point == 0x202F || point == 0x205F ||
         point == 0x3000;
}

bool is_printable(uint32_t point) {
  if (point < 0x7F) return point >= 0x20;
  switch (category(point)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_word(uint32_t point) {
  const auto c = category(point);
  return point == '_' || is_letter(point) ||
         (c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO);
}

bool is_identifier(std::string_view utf8) {
  if (utf8.empty()) return false;
  const std::u32string points = code_points(utf8);
  const auto first = category(points[0]);
  if (points[0] != '_' && !is_letter(points[0]) && first != UTF8PROC_CATEGORY_NL) return false;
  return std::all_of(points.begin(), points.end(), [](char32_t point) {
    return is_word(point) && category(point) != UTF8PROC_CATEGORY_NO;
  });
}

std::string_view strip(std::string_view text, Ends ends) {
  return strip_if(text, ends, [](uint32_t point) { return is_space(point); });
}

std::string_view strip(std::string_view text, std::string_view characters, Ends ends) {
  const std::u32string points = code_points(characters);
  return strip_if(text, ends, [&](uint32_t point) {
    return points.find(static_cast<char32_t>(point)) != std::u32string::npos;
  });
}

std::string upper(std::string_view text) {
  std::u32string out;
  for (const char32_t point : code_points(text)) append_upper(point, false, out);
  return to_utf8(out);
}

std::string lower(std::string_view text) {
  std::u32string out;
  const std::u32string points = code_points(text);
  for (size_t i = 0; i < points.size(); ++i) append_lower(points, i, out);
  return to_utf8(out);
}

std::string capitalize(std::string_view text) {
  std::u32string out;
  const std::u32string points = code_points(text);
  for (size_t i = 0; i < points.size(); ++i)
    if (i == 0)
      append_upper(points[0], true, out);
    else
      append_lower(points, i, out);
  return to_utf8(out);
}

std::string title(std::string_view text) {
  std::u32string out;
  const std::u32string points = code_points(text);
  bool inside = false;
  for (size_t i = 0; i < points.size(); ++i) {
    if (inside)
      append_lower(points, i, out);
    else
      append_upper(points[i], true, out);
    inside = is_cased(points[i]);
  }
  return to_utf8(out);
}

bool is_all(std::string_view text, TextClass wanted) {
  const std::u32string points = code_points(text);
  const auto all = [&](auto&& test) {
    return !points.empty() && std::all_of(points.begin(), points.end(), test);
  };
  const auto is_number = [](char32_t p) {
    const auto c = category(p);
    return c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO;
  };
  const auto cased = [&](auto&& right, auto&& wrong) {
    return std::any_of(points.begin(), points.end(), right) &&
           std::none_of(points.begin(), points.end(), [&](char32_t p) {
             return wrong(p) || category(p) == UTF8PROC_CATEGORY_LT;
           });
  };
  switch (wanted) {
    case TextClass::kUpper:
      return cased(is_upper_point, is_lower_point);
    case TextClass::kLower:
      return cased(is_lower_point, is_upper_point);
    case TextClass::kSpace:
      return all(is_space);
    case TextClass::kDigit:
      return all([](char32_t p) {
        return category(p) == UTF8PROC_CATEGORY_ND || p == 0xB2 || p == 0xB3 || p == 0xB9;
      });
    case TextClass::kAlpha:
      return all(is_letter);
    case TextClass::kAlnum:
      return all([&](char32_t p) { return is_letter(p) || is_number(p); });
  }
  return false;
}

std::string repr_text(std::string_view text) {
  const bool has_single = text.find('\'') != text.npos, has_double = text.find('"') != text.npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string out(1, quote);
  for (const char32_t point : code_points(text)) append_quoted(point, quote, out);
  return out + quote;
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value,
                                 std::chars_format::scientific);
  const std::string_view shortest(digits.data(), static_cast<size_t>(end.ptr - digits.data()));
  const size_t e = shortest.find('e');
  const int exponent = std::stoi(std::string(shortest.substr(e + 1)));
  if (exponent >= -4 && exponent < 16) {
    std::array<char, 64> fixed{};
    const auto last =
        std::to_chars(fixed.data(), fixed.data() + fixed.size(), value, std::chars_format::fixed);
    std::string out(fixed.data(), last.ptr);
    return out.find('.') == out.npos ? out + ".0" : out;
  }
  std::string out(shortest.substr(0, e));
  out += exponent < 0 ? "e-" : "e+";
  const std::string power = std::to_string(std::abs(exponent));
  return out + (power.size() < 2 ? "0" : "") + power;
}

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const tokenizer::CodePoint point = tokenizer::decode_utf8(text.data() + i);
    if (!is_line_end(point.value)) {
      i += point.length;
      continue;
    }
    size_t end = i + point.length;
    if (point.value == '\r' && end < text.size() && text[end] == '\n') ++end;
    lines.emplace_back(text.substr(begin, (keep_ends ? end : i) - begin));
    begin = i = end;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

std::string replace_all(std::string_view text, std::string_view old, std::string_view with,
                        int64_t most) {
  std::string out;
  size_t from = 0;
  if (old.empty()) {
    while (from <= text.size() && most != 0) {
      out += with;
      --most;
      if (from == text.size()) return out;
      const uint32_t length = tokenizer::decode_utf8(text.data() + from).length;
      out += text.substr(from, length);
      from += length;
    }
    return out.append(text.substr(from));
  }
  for (size_t at; most != 0 && (at = text.find(old, from)) != text.npos; --most) {
    out += text.substr(from, at - from);
    out += with;
    from = at + old.size();
  }
  return out.append(text.substr(from));
}

size_t count_of(std::string_view text, std::string_view part) {
  if (part.empty()) return length_in_points(text) + 1;
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++count;
  return count;
}

}  // namespace octavo::jinja
