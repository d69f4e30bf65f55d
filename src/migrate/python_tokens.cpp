#include "migrate/python_tokens.h"

#include "base/error.h"
#include "migrate/import_read.h"

namespace octavo::migrate {
namespace {

constexpr size_t kMostTokens = 100000;

bool is_letter(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class PythonScanner {
 public:
  PythonScanner(std::string_view text, const std::string& shown) : text_(text), shown_(shown) {}

  std::vector<PythonLine> read() {
    while (at_ < text_.size()) {
      if (depth_ == 0 && at_line_start_) begin_line();
      if (at_ < text_.size()) read_one();
    }
    if (depth_ != 0) refuse("brackets that close");
    end_line();
    return std::move(lines_);
  }

 private:
  [[noreturn]] void refuse(std::string_view wanted) const {
    fail(ExitCode::kUsage, "config", shown_, ":", number_, ": wanted ", wanted,
         "; is this Python?");
  }

  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : 0; }

  void begin_line() {
    size_t indent = 0;
    while (peek() == ' ' || peek() == '\t') ++indent, ++at_;
    line_ = {.number = number_, .indent = indent, .tokens = {}};
    at_line_start_ = false;
  }

  void end_line() {
    if (!line_.tokens.empty()) lines_.push_back(std::move(line_));
    line_ = {};
    at_line_start_ = true;
  }

  void read_one() {
    const char c = peek();
    if (c == '\n') {
      ++at_, ++number_;
      if (depth_ == 0) end_line();
    } else if (c == '#') {
      while (at_ < text_.size() && peek() != '\n') ++at_;
    } else if (c == '\\' && (peek(1) == '\n' || peek(1) == '\r')) {
      at_ += peek(1) == '\r' ? 3 : 2;
      ++number_;
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f') {
      ++at_;
    } else {
      read_token();
    }
  }

  void read_token() {
    if (++count_ > kMostTokens) refuse("fewer than 100000 words");
    PythonToken token{.text = {}, .begin = at_, .end = at_};
    const char c = peek();
    if (size_t prefix = 0; is_string(prefix)) {
      token.kind = PythonToken::Kind::kText;
      const std::string_view letters = text_.substr(at_, prefix);
      token.is_plain = letters.find_first_of("fFbBtT") == letters.npos;
      at_ += prefix;
      token.text = read_string(letters.find_first_of("rR") != letters.npos);
    } else if (is_letter(c)) {
      token.kind = PythonToken::Kind::kName;
      while (is_letter(peek()) || is_digit(peek())) token.text += text_[at_++];
    } else if (is_digit(c) || (c == '.' && is_digit(peek(1)))) {
      token.kind = PythonToken::Kind::kNumber;
      while (is_letter(peek()) || is_digit(peek()) || peek() == '.' ||
             ((peek() == '-' || peek() == '+') && (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E')))
        token.text += text_[at_++];
    } else {
      if (c == '(' || c == '[' || c == '{') ++depth_;
      if (c == ')' || c == ']' || c == '}')
        if (--depth_ < 0) refuse("brackets that open before they close");
      token.text = std::string(1, c);
      ++at_;
      if (peek() == '=' && std::string_view("=!<>+-*/").find(c) != std::string_view::npos)
        token.text += text_[at_++];
    }
    token.end = at_;
    line_.tokens.push_back(std::move(token));
  }

  // "…", r'…', f"""…""": the letters before the quote.
  bool is_string(size_t& prefix) const {
    for (prefix = 0; prefix <= 2; ++prefix) {
      const char c = peek(prefix);
      if (c == '"' || c == '\'') return true;
      if (std::string_view("rRbBfFuUtT").find(c) == std::string_view::npos || c == 0) return false;
    }
    return false;
  }

  std::string read_string(bool raw) {
    const char quote = peek();
    const bool is_long = peek(1) == quote && peek(2) == quote;
    at_ += is_long ? 3 : 1;
    std::string out;
    for (;;) {
      if (at_ >= text_.size() || (peek() == '\n' && !is_long)) refuse("strings that end");
      if (peek() == quote && (!is_long || (peek(1) == quote && peek(2) == quote))) break;
      if (peek() == '\n') ++number_;
      if (peek() == '\\' && at_ + 1 < text_.size()) {
        if (peek(1) == '\n') ++number_;
        out += escaped(peek(1), raw);
        at_ += 2;
      } else {
        out += text_[at_++];
      }
    }
    at_ += is_long ? 3 : 1;
    return out;
  }

  // The escapes that settings have; others stay as they are written.
  static std::string escaped(char letter, bool raw) {
    if (!raw && (letter == '\\' || letter == '\'' || letter == '"')) return std::string(1, letter);
    if (!raw && letter == 'n') return "\n";
    if (!raw && letter == 't') return "\t";
    if (!raw && letter == '\n') return "";
    return std::string("\\") + letter;
  }

  std::string_view text_;
  const std::string& shown_;
  size_t at_ = 0, count_ = 0;
  int number_ = 1, depth_ = 0;
  bool at_line_start_ = true;
  PythonLine line_;
  std::vector<PythonLine> lines_;
};

}  // namespace

std::vector<PythonLine> python_lines(std::string_view text, const std::string& shown) {
  return PythonScanner(text, shown).read();
}

}  // namespace octavo::migrate
