#include "jinja/lexer.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "base/printable.h"
#include "jinja/python_text.h"
#include "jinja/string_literal.h"
#include "tokenizer/unicode.h"

namespace octavo::jinja {
namespace {

using Type = Token::Type;

// As Python joins the lines that it splits: one line end at the end is not part of the template.
std::string with_plain_line_ends(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool all_space(std::string_view text) {
  return strip(text, Ends::kBoth).empty();
}

constexpr std::string_view kOperators[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "/",
                                           "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                           ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(with_plain_line_ends(source)), rest_(text_) {}

  std::vector<Token> run() {
    while (!rest_.empty()) root();
    add(Type::kEnd, "");
    return std::move(tokens_);
  }

 private:
  template <typename... Parts>
  [[noreturn]] void complain(const Parts&... parts) const {
    refuse("line ", line_, ": ", parts...);
  }

  void add(Type type, std::string text) {
    tokens_.push_back({.type = type, .text = std::move(text), .number = {}, .line = line_});
  }
  void skip(size_t count) {
    const std::string_view gone = rest_.substr(0, count);
    line_ += static_cast<int>(std::count(gone.begin(), gone.end(), '\n'));
    if (!gone.empty()) at_line_start_ = gone.back() == '\n';
    rest_.remove_prefix(count);
  }
  void skip_space() { skip(rest_.size() - strip(rest_, Ends::kLeft).size()); }

  static size_t next_tag(std::string_view text) {
    for (size_t at = 0; (at = text.find('{', at)) != text.npos && at + 1 < text.size(); ++at)
      if (text[at + 1] == '{' || text[at + 1] == '%' || text[at + 1] == '#') return at;
    return text.npos;
  }

  // The text before a tag that begins with `tag`, cut as its sign says.
  void data(std::string_view text, char sign, bool is_variable) {
    if (sign == '-') {
      text = strip(text, Ends::kRight);
    } else if (sign != '+' && !is_variable) {
      const size_t line = text.rfind('\n') + 1;  // 0 when there is none
      if ((line > 0 || at_line_start_) && all_space(text.substr(line))) text = text.substr(0, line);
    }
    if (!text.empty()) add(Type::kData, std::string(text));
  }

  char sign_at(size_t at) const {
    return at < rest_.size() && (rest_[at] == '-' || rest_[at] == '+') ? rest_[at] : '\0';
  }

  void root() {
    const size_t at = next_tag(rest_);
    if (at == rest_.npos) {
      add(Type::kData, std::string(rest_));
      skip(rest_.size());
      return;
    }
    const char kind = rest_[at + 1], sign = sign_at(at + 2);
    const size_t raw = kind == '%' ? raw_begin(rest_.substr(at + 2)) : 0;
    data(rest_.substr(0, at), sign, kind == '{');
    if (raw > 0) {
      skip(at + 2 + raw);
      raw_block();
      return;
    }
    skip(at + 2 + (sign != '\0' ? 1 : 0));
    if (kind == '#')
      comment();
    else
      tag(kind == '{');
  }

  // How long "raw %}" behind "{%" is; 0 when it is something else.
  static size_t raw_begin(std::string_view after) {
    std::string_view text = after;
    if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
    text = strip(text, Ends::kLeft);
    if (!text.starts_with("raw")) return 0;
    text = strip(text.substr(3), Ends::kLeft);
    if (text.starts_with("%}")) return after.size() - (text.size() - 2);
    if (text.starts_with("-%}")) return after.size() - strip(text.substr(3), Ends::kLeft).size();
    return 0;
  }

  void raw_block() {
    for (size_t at = 0; (at = rest_.find("{%", at)) != rest_.npos; ++at) {
      const char sign = sign_at(at + 2);
      std::string_view text = strip(rest_.substr(at + 2 + (sign != '\0' ? 1 : 0)), Ends::kLeft);
      if (!text.starts_with("endraw")) continue;
      text = strip(text.substr(6), Ends::kLeft);
      if (!text.starts_with("%}") && !text.starts_with("-%}") && !text.starts_with("+%}")) continue;
      data(rest_.substr(0, at), sign, false);
      skip(rest_.size() - text.size());
      end_of_tag("%}", true);
      return;
    }
    if (!rest_.empty()) complain("missing end of the raw block");  // empty: Jinja is content
  }

  void comment() {
    size_t at = rest_.find("#}");
    if (at == rest_.npos) {
      if (rest_.empty()) return;  // Jinja is content
      complain("missing end of a comment");
    }
    if (at > 0 && (rest_[at - 1] == '-' || rest_[at - 1] == '+')) --at;
    skip(at);
    end_of_tag("#}", true);
  }

  // The end of a tag, if it stands here, with what it cuts behind it.
  bool end_of_tag(std::string_view end, bool is_block) {
    if (rest_.starts_with(end)) {
      skip(end.size());
      if (is_block && rest_.starts_with('\n')) skip(1);
      return true;
    }
    if (rest_.size() <= end.size() || rest_.substr(1, end.size()) != end) return false;
    if (rest_[0] == '-') {
      skip(1 + end.size());
      skip_space();
      return true;
    }
    if (rest_[0] != '+' || !is_block) return false;
    skip(1 + end.size());
    return true;
  }

  void tag(bool is_variable) {
    add(is_variable ? Type::kVariableBegin : Type::kBlockBegin, "");
    const std::string_view end = is_variable ? "}}" : "%}";
    while (!rest_.empty()) {
      const int line = line_;
      if (open_.empty() && end_of_tag(end, !is_variable)) {
        add(is_variable ? Type::kVariableEnd : Type::kBlockEnd, "");
        tokens_.back().line = line;
        return;
      }
      token();
    }
  }

  void token() {
    const tokenizer::CodePoint first = tokenizer::decode_utf8(rest_.data());
    if (is_space(first.value)) return skip_space();
    if (first.value >= '0' && first.value <= '9') return number();
    if (is_word(first.value)) return name();
    if (first.value == '\'' || first.value == '"') return string();
    for (const std::string_view sign : kOperators)
      if (rest_.starts_with(sign)) return sign_token(sign);
    complain("unexpected character '", printable(rest_.substr(0, first.length)), "'");
  }

  void name() {
    size_t size = 0;
    while (size < rest_.size()) {
      const tokenizer::CodePoint point = tokenizer::decode_utf8(rest_.data() + size);
      if (!is_word(point.value)) break;
      size += point.length;
    }
    if (!is_identifier(rest_.substr(0, size))) complain("wrong character in a name");
    add(Type::kName, std::string(rest_.substr(0, size)));
    skip(size);
  }

  void string() {
    size_t end = 1;
    while (end < rest_.size() && rest_[end] != rest_[0]) end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) complain("a string without end");
    std::string value;
    if (const std::string wrong = unescape(rest_.substr(1, end - 1), value); !wrong.empty())
      complain(wrong);
    add(Type::kString, std::move(value));
    skip(end + 1);
  }

  void sign_token(std::string_view sign) {
    constexpr std::string_view kOpen = "{([", kClose = "})]";
    if (sign.size() == 1 && kOpen.find(sign) != kOpen.npos) {
      open_ += kClose[kOpen.find(sign)];
    } else if (sign.size() == 1 && kClose.find(sign) != kClose.npos) {
      if (open_.empty() || open_.back() != sign[0]) complain("unexpected '", sign, "'");
      open_.pop_back();
    }
    add(Type::kOperator, std::string(sign));
    skip(sign.size());
  }

  // Digits with single underscores between them; where they end.
  size_t digits(size_t from, int base) const {
    const auto is_digit = [&](size_t at) {
      if (at >= rest_.size()) return false;
      const char c = rest_[at];
      const int value = c >= '0' && c <= '9'                                ? c - '0'
                        : std::isxdigit(static_cast<unsigned char>(c)) != 0 ? (c | 32) - 'a' + 10
                                                                            : 99;
      return value < base;
    };
    if (!is_digit(from)) return from;
    while (is_digit(from) || (from < rest_.size() && rest_[from] == '_' && is_digit(from + 1)))
      ++from;
    return from;
  }

  size_t float_end() const {
    const bool after_dot = rest_.data() > text_.data() && rest_.data()[-1] == '.';
    if (after_dot) return 0;
    const size_t whole = digits(0, 10);
    size_t end = whole;
    if (end < rest_.size() && rest_[end] == '.' && digits(end + 1, 10) > end + 1)
      end = digits(end + 1, 10);
    if (end < rest_.size() && (rest_[end] == 'e' || rest_[end] == 'E')) {
      const size_t sign =
          end + 1 < rest_.size() && (rest_[end + 1] == '+' || rest_[end + 1] == '-') ? 1 : 0;
      const size_t power = digits(end + 1 + sign, 10);
      if (power > end + 1 + sign) return power;
    }
    return end > whole ? end : 0;
  }

  void number() {
    Token token{.type = Type::kNumber, .text = {}, .number = {}, .line = line_};
    size_t end = float_end();
    if (end > 0) {
      token.number = Value::real(std::strtod(plain_digits(0, end).c_str(), nullptr));
    } else {
      int base = 10;
      size_t from = 0;
      constexpr std::pair<char, int> kBases[] = {{'b', 2}, {'o', 8}, {'x', 16}};
      for (const auto& [letter, wanted] : kBases)
        if (rest_.size() > 2 && rest_[0] == '0' && (rest_[1] | 32) == letter) {
          const size_t start = rest_[2] == '_' ? 3 : 2;
          if (digits(start, wanted) > start) base = wanted, from = start;
        }
      end = digits(from, base);
      if (base == 10 && rest_[0] == '0')
        for (end = 1; end < rest_.size() &&
                      (rest_[end] == '0' ||
                       (rest_[end] == '_' && end + 1 < rest_.size() && rest_[end + 1] == '0'));)
          ++end;
      const std::string plain = plain_digits(from, end);
      int64_t value = 0;
      const auto [last, error] =
          std::from_chars(plain.data(), plain.data() + plain.size(), value, base);
      if (error != std::errc()) complain("wanted an integer of 64 bits, found ", printable(plain));
      token.number = Value::integer(value);
    }
    tokens_.push_back(std::move(token));
    skip(end);
  }

  std::string plain_digits(size_t from, size_t end) const {
    std::string out(rest_.substr(from, end - from));
    std::erase(out, '_');
    return out;
  }

  std::string text_;
  std::string_view rest_;
  std::vector<Token> tokens_;
  std::string open_;  // the closing signs that are due
  int line_ = 1;
  bool at_line_start_ = true;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace octavo::jinja
