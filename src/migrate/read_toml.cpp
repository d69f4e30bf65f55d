#include "migrate/read_toml.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"
#include "config/key_makers.h"

namespace octavo::migrate {
namespace {

constexpr int kTomlDepth = 16;
constexpr size_t kTomlTables = 1000;

bool is_toml_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_bare(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || is_toml_digit(c) || c == '_' ||
         c == '-';
}

// "1_000" without its underscores, which must stand between digits; nothing when they do not.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const auto digit = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
    if (i == 0 || i + 1 == text.size() || !digit(text[i - 1]) || !digit(text[i + 1]))
      return std::nullopt;
  }
  return out;
}

std::optional<int64_t> toml_integer(std::string_view text) {
  const int base = text.starts_with("0x")   ? 16
                   : text.starts_with("0o") ? 8
                   : text.starts_with("0b") ? 2
                                            : 10;
  std::string_view digits = text.substr(base == 10 ? 0 : 2);
  const bool negative = base == 10 && digits.starts_with('-');
  if (base == 10 && (negative || digits.starts_with('+'))) digits.remove_prefix(1);
  if (digits.empty() || (base == 10 && digits.size() > 1 && digits[0] == '0')) return std::nullopt;
  int64_t value = 0;
  for (const char c : digits) {
    const int digit = is_toml_digit(c)       ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : 99;
    if (digit >= base || __builtin_mul_overflow(value, base, &value)) return std::nullopt;
    if (__builtin_sub_overflow(value, digit, &value)) return std::nullopt;  // down: has the least
  }
  if (negative) return value;
  if (value == std::numeric_limits<int64_t>::min()) return std::nullopt;
  return -value;
}

// A float as TOML writes it: digits on both sides of the point, no leading zero.
std::optional<double> toml_float(std::string_view text) {
  std::string_view rest = text;
  if (rest.starts_with('-') || rest.starts_with('+')) rest.remove_prefix(1);
  const bool negative = text.starts_with('-');
  if (rest == "inf") return negative ? -HUGE_VAL : HUGE_VAL;
  if (rest == "nan") return std::nan("");
  if (rest.empty() || !is_toml_digit(rest[0])) return std::nullopt;
  if (rest.size() > 1 && rest[0] == '0' && is_toml_digit(rest[1])) return std::nullopt;
  const size_t point = rest.find('.');
  if (point != rest.npos && (point + 1 == rest.size() || !is_toml_digit(rest[point + 1])))
    return std::nullopt;
  if (point == rest.npos && rest.find_first_of("eE") == rest.npos) return std::nullopt;
  const std::optional<double> value = config::parse_number<double>(rest);
  return value ? std::optional<double>(negative ? -*value : *value) : std::nullopt;
}

bool is_date(std::string_view text) {
  const bool day = text.size() >= 10 && text[4] == '-' && text[7] == '-';
  const bool hour = text.size() >= 8 && text[2] == ':' && text[5] == ':';
  return (day || hour) && std::ranges::all_of(text, [](char c) {
           return is_toml_digit(c) ||
                  std::string_view("-:.+TtZz ").find(c) != std::string_view::npos;
         });
}

class TomlReader {
 public:
  TomlReader(std::string_view text, const std::string& shown) : text_(text), shown_(shown) {}

  std::vector<ForeignEntry> read() {
    while (skip_blank_lines()) {
      if (peek() == '[')
        read_header();
      else
        read_pair(table_, entries_, 0);
      skip_spaces();
      skip_comment();
      if (!at_end() && !take_newline()) refuse("the end of the line");
    }
    return std::move(entries_);
  }

 private:
  bool at_end() const { return at_ == text_.size(); }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : 0; }
  bool next_is(std::string_view what) const { return text_.substr(at_).starts_with(what); }

  [[noreturn]] void refuse(std::string_view wanted) const {
    const size_t end = std::min(text_.find('\n', at_), at_ + 40);
    const std::string found(text_.substr(at_, end == text_.npos ? 40 : end - at_));
    fail(ExitCode::kUsage, "config", shown_, ":", line_, ": wanted ", wanted, ", found ",
         at_end() ? "the end of the file" : shown_text(found), "; is this TOML?");
  }

  bool take_newline() {
    if (next_is("\r\n")) ++at_;
    if (peek() != '\n' || at_end()) return false;
    ++at_, ++line_;
    return true;
  }

  void skip_spaces() {
    while (peek() == ' ' || peek() == '\t') ++at_;
  }

  void skip_comment() {
    if (peek() != '#') return;
    while (!at_end() && peek() != '\n' && !next_is("\r\n")) check_plain(text_[at_++]);
  }

  void check_plain(char c) const {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\t') || byte == 0x7F) refuse("text without control characters");
  }

  // Spaces, comments and empty lines; false at the end.
  bool skip_blank_lines() {
    do {
      skip_spaces();
      skip_comment();
    } while (take_newline());
    return !at_end();
  }

  std::vector<std::string> read_key() {
    std::vector<std::string> parts;
    do {
      if (!parts.empty()) ++at_;  // the point
      skip_spaces();
      std::string part;
      if (peek() == '"' || peek() == '\'') {
        part = read_string(false);
      } else {
        while (is_bare(peek())) part += text_[at_++];
        if (part.empty()) refuse("a key");
      }
      parts.push_back(std::move(part));
      if (parts.size() > kTomlDepth) refuse(str("at most ", kTomlDepth, " levels"));
      skip_spaces();
    } while (peek() == '.');
    return parts;
  }

  void read_header() {
    const bool list = next_is("[[");
    at_ += list ? 2 : 1;
    const std::string name = join(read_key(), ".");
    if (!next_is(list ? "]]" : "]")) refuse(list ? "]]" : "]");
    at_ += list ? 2 : 1;
    if (list) {
      table_ = str(name, ".", lists_.count(name), ".");
      lists_.insert(name);
    } else {
      if (!tables_.insert(name).second) refuse("each table once, of [" + shown_text(name) + "]");
      table_ = name + ".";
    }
    if (tables_.size() + lists_.size() > kTomlTables)
      refuse(str("at most ", kTomlTables, " tables"));
    for (const ForeignEntry& entry : entries_)
      if (entry.path == name) refuse("each name once, of " + shown_text(name));
  }

  void read_pair(const std::string& table, std::vector<ForeignEntry>& into, int depth) {
    const int line = line_;
    const std::string path = table + join(read_key(), ".");
    if (peek() != '=') refuse("=");
    ++at_;
    skip_spaces();
    read_value(path, line, into, depth);
  }

  void read_value(const std::string& path, int line, std::vector<ForeignEntry>& into, int depth) {
    if (peek() == '{') return read_inline_table(path, into, depth);
    ForeignEntry entry{.path = path, .values = {}, .where = str(shown_, ":", line)};
    if (peek() == '[') {
      entry.is_list = true;
      entry.values = read_list(depth + 1);
    } else {
      entry.values = {read_scalar()};
    }
    add(into, std::move(entry));
  }

  // A name is a value or a table, not both.
  void add(std::vector<ForeignEntry>& into, ForeignEntry entry) {
    const auto is_below = [](const std::string& path, const std::string& other) {
      return path.size() > other.size() && path[other.size()] == '.' && path.starts_with(other);
    };
    for (const ForeignEntry& before : into)
      if (is_below(before.path, entry.path) || is_below(entry.path, before.path))
        refuse("each name once, of " + shown_text(entry.path));
    add_entry(into, std::move(entry), shown_);
  }

  void read_inline_table(const std::string& path, std::vector<ForeignEntry>& into, int depth) {
    if (depth == kTomlDepth) refuse(str("at most ", kTomlDepth, " levels"));
    ++at_;
    skip_spaces();
    const int line = line_;
    if (peek() == '}') {
      ++at_;
      return add(into,
                 {.path = path, .values = {}, .is_null = true, .where = str(shown_, ":", line)});
    }
    for (;; ++at_) {
      skip_spaces();
      read_pair(path + ".", into, depth + 1);
      skip_spaces();
      if (peek() != ',') break;
    }
    if (peek() != '}') refuse("}");
    ++at_;
  }

  // The items as text; a list or table in a list stays one item, as it is written.
  std::vector<std::string> read_list(int depth) {
    if (depth > kTomlDepth) refuse(str("at most ", kTomlDepth, " levels"));
    std::vector<std::string> items;
    ++at_;
    for (;;) {
      if (!skip_blank_lines()) refuse("]");
      if (peek() == ']') break;
      const size_t begin = at_;
      if (peek() == '[') {
        read_list(depth + 1);
        items.emplace_back(text_.substr(begin, at_ - begin));
      } else if (peek() == '{') {
        std::vector<ForeignEntry> inner;
        read_inline_table("", inner, depth);
        items.emplace_back(text_.substr(begin, at_ - begin));
      } else {
        items.push_back(read_scalar());
      }
      if (!skip_blank_lines()) refuse("]");
      if (peek() == ',')
        ++at_;
      else if (peek() != ']')
        refuse(", or ]");
    }
    ++at_;
    return items;
  }

  std::string read_scalar() {
    if (peek() == '"' || peek() == '\'') return read_string(true);
    const size_t begin = at_;
    const auto ends = [&] {
      return at_end() || std::string_view(",]}#\n\r\t ").find(peek()) != std::string_view::npos;
    };
    while (!ends()) ++at_;
    if (at_ - begin == 10 && is_date(text_.substr(begin, 10)) && peek() == ' ' &&
        is_toml_digit(peek(1))) {
      ++at_;
      while (!ends()) ++at_;
    }
    const std::string word(text_.substr(begin, at_ - begin));
    if (word == "true" || word == "false" || is_date(word)) return word;
    if (const std::optional<std::string> number = without_underscores(word)) {
      if (const std::optional<int64_t> whole = toml_integer(*number))
        return config::print_number(*whole);
      if (const std::optional<double> real = toml_float(*number))
        return std::isfinite(*real) ? Json(*real).dump() : *number;
    }
    at_ = begin;
    refuse("a value");
  }

  std::string read_string(bool several_lines) {
    const char quote = peek();
    const std::string triple(3, quote);
    const bool is_long = several_lines && next_is(triple);
    at_ += is_long ? 3 : 1;
    if (is_long) take_newline();
    std::string out;
    for (;;) {
      if (at_end()) refuse("the end of a string");
      if (is_long ? next_is(triple) : peek() == quote) break;
      if (take_newline()) {
        if (!is_long) refuse("the end of a string before the end of the line");
        out += '\n';
      } else if (quote == '"' && peek() == '\\') {
        read_escape(out, is_long);
      } else {
        check_plain(peek());
        out += text_[at_++];
      }
    }
    at_ += is_long ? 3 : 1;
    // Up to two quotes may stand before the last three.
    for (int more = 0; is_long && more < 2 && peek() == quote; ++more) out += text_[at_++];
    return out;
  }

  void read_escape(std::string& out, bool is_long) {
    static constexpr std::pair<char, char> kShort[] = {
        {'b', '\b'}, {'t', '\t'}, {'n', '\n'}, {'f', '\f'}, {'r', '\r'}, {'"', '"'}, {'\\', '\\'}};
    const char kind = peek(1);
    for (const auto& [letter, meant] : kShort)
      if (kind == letter && kind != 0) {
        at_ += 2;
        out += meant;
        return;
      }
    if (kind == 'u' || kind == 'U') return read_code_point(out, kind == 'u' ? 4 : 8);
    const size_t begin = at_++;
    skip_spaces();
    if (!is_long || !take_newline()) {
      at_ = begin;
      refuse("an escape of TOML");
    }
    while (peek() == ' ' || peek() == '\t' || peek() == '\n' || next_is("\r\n"))
      if (!take_newline()) ++at_;
  }

  void read_code_point(std::string& out, size_t digits) {
    const std::string_view hex = text_.substr(at_ + 2, digits);
    const bool fits = hex.size() == digits && std::ranges::all_of(hex, [](char c) {
                        return std::isxdigit(static_cast<unsigned char>(c)) != 0;
                      });
    const auto code =
        fits ? static_cast<uint32_t>(std::stoul(std::string(hex), nullptr, 16)) : 0xD800u;
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) refuse("a Unicode scalar value");
    append_utf8(code, out);
    at_ += 2 + digits;
  }

  std::string_view text_;
  const std::string& shown_;
  size_t at_ = 0;
  int line_ = 1;
  std::string table_;  // "" or "training."
  std::set<std::string> tables_;
  std::multiset<std::string> lists_;
  std::vector<ForeignEntry> entries_;
};

}  // namespace

std::vector<ForeignEntry> toml_entries(std::string_view text, const std::string& shown) {
  return TomlReader(text, shown).read();
}

}  // namespace octavo::migrate
