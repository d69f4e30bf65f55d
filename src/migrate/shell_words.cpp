#include "migrate/shell_words.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "config/key_makers.h"

namespace octavo::migrate {
namespace {

constexpr size_t kMostFields = 4096;       // of a word: an array that holds itself grows
constexpr size_t kMostFieldBytes = 65536;  // and a text that holds itself
constexpr size_t kMostExpansion = 4096;    // characters between ${ and }
constexpr int kMostNested = 16;

bool begins_name(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

bool in_name(char c) {
  return begins_name(c) || (c >= '0' && c <= '9');
}

class Arithmetic {
 public:
  Arithmetic(std::string_view text, const ShellVariables& variables)
      : text_(text), variables_(variables) {}

  std::optional<int64_t> value() {
    const std::optional<int64_t> result = sum(0);
    skip();
    return at_ == text_.size() ? result : std::nullopt;
  }

 private:
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n'))
      ++at_;
  }
  char peek() {
    skip();
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  std::optional<int64_t> sum(int depth) {
    std::optional<int64_t> left = product(depth);
    while (left && (peek() == '+' || peek() == '-')) {
      const bool minus = text_[at_++] == '-';
      const std::optional<int64_t> right = product(depth);
      int64_t result = 0;
      if (!right || (minus ? __builtin_sub_overflow(*left, *right, &result)
                           : __builtin_add_overflow(*left, *right, &result)))
        return std::nullopt;
      left = result;
    }
    return left;
  }

  std::optional<int64_t> product(int depth) {
    std::optional<int64_t> left = term(depth);
    while (left && (peek() == '*' || peek() == '/' || peek() == '%')) {
      const char sign = text_[at_++];
      const std::optional<int64_t> right = term(depth);
      int64_t result = 0;
      if (!right || (sign != '*' && *right <= 0)) return std::nullopt;
      if (sign == '*' && __builtin_mul_overflow(*left, *right, &result)) return std::nullopt;
      left = sign == '*' ? result : sign == '/' ? *left / *right : *left % *right;
    }
    return left;
  }

  std::optional<int64_t> term(int depth) {
    if (depth > 16) return std::nullopt;
    if (peek() == '(') {
      ++at_;
      const std::optional<int64_t> inner = sum(depth + 1);
      if (!inner || peek() != ')') return std::nullopt;
      ++at_;
      return inner;
    }
    if (peek() == '$') ++at_;
    const bool braces = peek() == '{';
    if (braces) ++at_;
    std::string word;
    while (at_ < text_.size() && in_name(text_[at_])) word += text_[at_++];
    if (braces && (at_ == text_.size() || text_[at_++] != '}')) return std::nullopt;
    if (!word.empty() && begins_name(word[0])) {
      const auto found = variables_.find(word);
      if (found == variables_.end() || found->second.size() != 1 || found->second[0].is_unknown)
        return std::nullopt;
      word = found->second[0].text;
    }
    return config::parse_number<int64_t>(word);
  }

  std::string_view text_;
  const ShellVariables& variables_;
  size_t at_ = 0;
};

}  // namespace

std::optional<int64_t> shell_arithmetic(std::string_view text, const ShellVariables& variables) {
  return Arithmetic(text, variables).value();
}

void ShellWords::skip(size_t count) {
  for (; count > 0 && !at_end(); --count)
    if (text_[at_++] == '\n') ++line_;
}

void ShellWords::skip_spaces() {
  for (;;) {
    if (peek() == ' ' || peek() == '\t' || peek() == '\r')
      ++at_;
    else if (peek() == '\\' && peek(1) == '\n')
      skip(2);
    else if (peek() == '\\' && peek(1) == '\r' && peek(2) == '\n')
      skip(3);
    else if (peek() == '#')
      skip_line();
    else
      return;
  }
}

void ShellWords::skip_line() {
  while (!at_end() && peek() != '\n') ++at_;
}

bool ShellWords::take(std::string_view what) {
  if (!text_.substr(std::min(at_, text_.size())).starts_with(what)) return false;
  skip(what.size());
  return true;
}

std::string ShellWords::take_name() {
  std::string name;
  if (begins_name(peek()))
    while (in_name(peek())) name += text_[at_++];
  return name;
}

void ShellWords::add(Word& word, std::string_view text, bool unknown) const {
  if (!word.open) word.fields.emplace_back();
  word.open = true;
  ShellField& field = word.fields.back();
  if (word.fields.size() > kMostFields || field.text.size() + text.size() > kMostFieldBytes)
    fail(ExitCode::kUsage, "config", "line ", line_, ": wanted words of at most ", kMostFieldBytes,
         " bytes and ", kMostFields, " parts, found more; is this a launch script?");
  field.text += text;
  field.is_unknown |= unknown;
}

// Quoted, the fields of an array stay whole; otherwise they are split at spaces.
void ShellWords::add_fields(Word& word, const ShellFields& fields, bool quoted) const {
  for (size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) word.open = false;
    if (quoted) {
      add(word, fields[i].text, fields[i].is_unknown);
      continue;
    }
    std::string_view rest = fields[i].text;
    while (!rest.empty()) {
      const size_t space = rest.find_first_of(" \t\n");
      if (space > 0) add(word, rest.substr(0, space), fields[i].is_unknown);
      if (space == rest.npos) break;  // the last part may go on: $A/b
      word.open = false;
      rest.remove_prefix(space + 1);
    }
  }
}

size_t ShellWords::end_of_bracket(char open, char close) const {
  int depth = 0;
  const size_t end = std::min(text_.size(), at_ + kMostExpansion);
  for (size_t i = at_; i < end; ++i) {
    if (text_[i] == open) ++depth;
    if (text_[i] == close && --depth == 0) return i;
  }
  return text_.npos;
}

void ShellWords::read_braces(Word& word, const ShellVariables& variables, bool quoted) {
  const size_t begin = at_ - 1, end = end_of_bracket('{', '}');  // at {
  if (end == text_.npos || depth_ == kMostNested) return add(word, "$", true);
  const std::string_view inner = text_.substr(at_ + 1, end - at_ - 1);
  const std::string_view raw = text_.substr(begin, end + 1 - begin);
  skip(raw.size() - 1);
  size_t length = 0;
  while (length < inner.size() && in_name(inner[length])) ++length;
  const std::string_view name = inner.substr(0, length), rest = inner.substr(length);
  const auto found = variables.find(name);
  const bool set = found != variables.end() && !found->second.empty() &&
                   (found->second.size() > 1 || !found->second[0].text.empty());
  if (found != variables.end() && (rest.empty() || rest == "[@]" || rest == "[*]"))
    return add_fields(word, found->second, quoted);
  for (const std::string_view sign : {":-", ":=", "-", "="}) {
    if (!rest.starts_with(sign)) continue;
    if (set) return add_fields(word, found->second, quoted);
    ShellWords inside(rest.substr(sign.size()), depth_ + 1);
    while (!inside.at_end()) {
      const size_t before = inside.at_;
      add_fields(word, inside.read_word(variables), true);
      if (inside.at_ != before) continue;
      add(word, inside.text_.substr(before, 1));  // a space, which the default has
      inside.skip();
    }
    return;
  }
  add(word, raw, true);
}

void ShellWords::read_dollar(Word& word, const ShellVariables& variables, bool quoted) {
  ++at_;  // $
  const size_t begin = at_ - 1;
  if (peek() == '{') return read_braces(word, variables, quoted);
  if (peek() == '(') {
    const bool sum = peek(1) == '(';
    const size_t end = end_of_bracket('(', ')');
    if (end == text_.npos) return add(word, "$", true);
    const std::string_view raw = text_.substr(begin, end + 1 - begin);
    skip(raw.size() - 1);
    if (sum && raw.size() > 5 && raw.ends_with("))"))
      if (const auto value = shell_arithmetic(raw.substr(3, raw.size() - 5), variables))
        return add(word, config::print_number(*value));
    return add(word, raw, true);
  }
  const std::string name = take_name();
  if (name.empty()) {  // $1, $@, or a lone dollar
    const bool parameter =
        !at_end() && std::string_view("@*#?!0123456789").find(peek()) != std::string_view::npos;
    if (parameter) ++at_;
    return add(word, text_.substr(begin, at_ - begin), parameter);
  }
  const auto found = variables.find(name);
  if (found == variables.end()) return add(word, "$" + name, true);
  // Of an array, $NAME is the first.
  const size_t first = std::min<size_t>(found->second.size(), 1);
  add_fields(word, {found->second.begin(), found->second.begin() + static_cast<long>(first)},
             quoted);
}

void ShellWords::read_double_quotes(Word& word, const ShellVariables& variables) {
  ++at_;
  add(word, "");
  while (!at_end() && peek() != '"') {
    if (peek() == '\\' && peek(1) == '\n') {
      skip(2);
    } else if (peek() == '\\' &&
               std::string_view("\"$`\\").find(peek(1)) != std::string_view::npos && peek(1) != 0) {
      add(word, text_.substr(at_ + 1, 1));
      skip(2);
    } else if (peek() == '$') {
      read_dollar(word, variables, true);
    } else {
      add(word, text_.substr(at_, 1));
      skip();
    }
  }
  skip();
}

ShellFields ShellWords::read_word(const ShellVariables& variables) {
  Word word;
  while (!at_end() && std::string_view(" \t\r\n;|&()<>").find(peek()) == std::string_view::npos) {
    if (peek() == '\\') {
      if (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n')) break;
      add(word, text_.substr(std::min(at_ + 1, text_.size()), 1));
      skip(2);
    } else if (peek() == '\'') {
      const size_t end = text_.find('\'', at_ + 1);
      add(word, text_.substr(at_ + 1, end == text_.npos ? end : end - at_ - 1));
      skip((end == text_.npos ? text_.size() : end + 1) - at_);
    } else if (peek() == '"') {
      read_double_quotes(word, variables);
    } else if (peek() == '$') {
      read_dollar(word, variables, false);
    } else if (peek() == '`') {
      const size_t end = text_.find('`', at_ + 1);
      const std::string_view raw = text_.substr(at_, end == text_.npos ? end : end - at_ + 1);
      add(word, raw, true);
      skip(raw.size());
    } else {
      add(word, text_.substr(at_, 1));
      ++at_;
    }
  }
  return word.fields;
}

ShellFields ShellWords::read_array(const ShellVariables& variables) {
  ShellFields fields;
  skip();  // (
  while (!at_end() && peek() != ')') {
    skip_spaces();
    if (peek() == '\n') {
      skip();
      continue;
    }
    const size_t before = at_;
    for (ShellField& field : read_word(variables)) fields.push_back(std::move(field));
    if (fields.size() > kMostFields)
      fail(ExitCode::kUsage, "config", "line ", line_, ": wanted lists of at most ", kMostFields,
           " words, found more; is this a launch script?");
    if (at_ == before && peek() != ')') skip();
  }
  skip();
  return fields;
}

}  // namespace octavo::migrate
