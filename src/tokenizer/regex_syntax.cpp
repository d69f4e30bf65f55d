// Oniguruma (Ruby syntax) to PCRE2, construct by construct. What is not listed here is refused: \b,
// \h,
// ^, $ and stacked quantifiers exist in both and differ.

#include <algorithm>
#include <array>
#include <cctype>

#include "base/error.h"
#include "tokenizer/regex.h"

namespace octavo::tokenizer {
namespace {

constexpr size_t kMaxPattern = 4096;
constexpr int kMaxRepeat = 1000;
// Inside a class. PCRE2's \s adds U+180E; Oniguruma's \w has Latin-1's small digits and fractions.
constexpr std::string_view kSpaceSet =
    R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kWordSet =
    R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";

constexpr std::array<std::string_view, 35> kProperties = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me",         "N",           "Nd",
    "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po",         "S",           "Sm",
    "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "Cc", "Cf", "Alphabetic", "Join_Control"};
constexpr std::array<std::string_view, 12> kScripts = {
    "Han",  "Hiragana", "Katakana", "Hangul", "Latin",      "Greek",
    "Thai", "Cyrillic", "Arabic",   "Hebrew", "Devanagari", "Armenian"};
// Full case folding joins these letters into one character (ligatures, sharp s); PCRE2 does not.
constexpr std::array<std::string_view, 5> kFoldedPairs = {"ff", "fi", "fl", "ss", "st"};

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view source)
      : pattern_(pattern), source_(source) {}

  std::string run() {
    if (pattern_.size() > kMaxPattern) refuse("a pattern longer than 4096 bytes");
    while (!done()) step();
    return std::move(out_);
  }

 private:
  bool done() const { return at_ >= pattern_.size(); }
  char peek() const { return done() ? '\0' : pattern_[at_]; }
  bool take(std::string_view text) {
    if (!pattern_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  [[noreturn]] void refuse(std::string_view what) const {
    fail(ExitCode::kUsage, "tokenizer", source_, ": the pre-tokenizer pattern '", pattern_,
         "' uses ", what, " at byte ", at_, ", which is not supported; use another tokenizer");
  }

  void step() {
    const char c = peek();
    if (c == '\\') return escape(false);
    if (c == '[') return set();
    if (c == '(') return group();
    if (c == '*' || c == '+' || c == '?' || c == '{') return quantifier();
    if (c == '^' || c == '$') refuse("an anchor");
    ++at_;
    quantifiable_ = c != '|';
    if (c == '.')
      out_ += "[^\\n]";
    else if (c == ']' || c == '}' || c == '#')
      out_.append("\\").append(1, c);
    else
      out_ += c;
  }

  void escape(bool in_set) {
    ++at_;
    if (done()) refuse("a backslash at its end");
    quantifiable_ = true;
    const char c = pattern_[at_++];
    const auto set_text = [&](std::string_view text) {
      out_ += in_set ? std::string(text) : "[" + std::string(text) + "]";
    };
    if (c == 's') return set_text(kSpaceSet);
    if (c == 'w') return set_text(kWordSet);
    if (c == 'S' && !in_set) return void(out_ += "[^" + std::string(kSpaceSet) + "]");
    if (c == 'W' && !in_set) return void(out_ += "[^" + std::string(kWordSet) + "]");
    if (c == 'd') return void(out_ += "\\p{Nd}");
    if (c == 'D') return void(out_ += "\\P{Nd}");
    if (c == 'p' || c == 'P') return property(c);
    if (c == 'r' || c == 'n' || c == 't' || c == 'f') return void(out_.append("\\").append(1, c));
    if (c == 'v') return void(out_ += "\\x0b");
    if (c == 'x' || c == 'u') return hexadecimal(c);
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80 || std::isalnum(byte)) refuse(std::string("the escape \\") + c);
    out_.append("\\").append(1, c);
  }

  void property(char kind) {
    if (!take("{")) refuse("a property without braces");
    if (take("^")) kind = kind == 'p' ? 'P' : 'p';
    const size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos) refuse("an open property");
    const std::string_view name = pattern_.substr(at_, end - at_);
    const bool script = std::find(kScripts.begin(), kScripts.end(), name) != kScripts.end();
    if (!script && std::find(kProperties.begin(), kProperties.end(), name) == kProperties.end())
      refuse("the property " + std::string(name));
    at_ = end + 1;
    // A bare script name means Script_Extensions in PCRE2 and Script in Oniguruma.
    out_.append("\\").append(1, kind).append(script ? "{sc:" : "{").append(name).append("}");
  }

  void hexadecimal(char kind) {
    std::string digits;
    const bool braces = kind == 'x' && take("{");
    const size_t wanted = braces ? 6 : kind == 'x' ? 2 : 4;
    while (digits.size() < wanted && std::isxdigit(static_cast<unsigned char>(peek())))
      digits += pattern_[at_++];
    if (digits.empty() || (!braces && digits.size() != wanted) || (braces && !take("}")))
      refuse("a malformed character number");
    const unsigned long value = std::stoul(digits, nullptr, 16);
    if (kind == 'x' && !braces && value >= 0x80) refuse("a raw byte above 7f");
    out_ += "\\x{" + digits + "}";
  }

  void set() {
    out_ += pattern_[at_++];
    if (take("^")) out_ += '^';
    if (peek() == ']') refuse("an empty character class");
    while (peek() != ']') {
      if (done()) refuse("an open character class");
      if (peek() == '[') refuse("a class inside a class");
      if (pattern_.substr(at_).starts_with("&&")) refuse("an intersection of classes");
      if (peek() == '\\')
        escape(true);
      else
        out_ += pattern_[at_++];
    }
    out_ += pattern_[at_++];
    quantifiable_ = true;
  }

  void group() {
    static constexpr std::string_view kOpenings[] = {"(?:",  "(?i:", "(?=", "(?!",
                                                     "(?<=", "(?<!", "(?>"};
    for (const std::string_view opening : kOpenings) {
      if (!take(opening)) continue;
      if (opening == "(?i:") check_folding();
      out_ += opening;
      quantifiable_ = false;
      return;
    }
    if (pattern_.substr(at_).starts_with("(?") || pattern_.substr(at_).starts_with("(*"))
      refuse("a group of this kind");
    ++at_;
    out_ += "(?:";
    quantifiable_ = false;
  }

  // Only plain alternatives: classes and properties fold differently in the two libraries.
  void check_folding() const {
    std::string body(pattern_.substr(at_, pattern_.find(')', at_) - at_));
    if (body.find_first_of("([\\") != std::string::npos)
      refuse("more than plain letters in a group without case");
    std::transform(body.begin(), body.end(), body.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    for (const std::string_view pair : kFoldedPairs)
      if (body.find(pair) != std::string::npos)
        refuse("letters that fold into one character without case (" + std::string(pair) + ")");
  }

  void quantifier() {
    if (!quantifiable_) refuse("a quantifier after nothing or after a quantifier");
    quantifiable_ = false;
    if (peek() == '{') return interval();
    out_ += pattern_[at_++];
    if (peek() == '?' || peek() == '+') out_ += pattern_[at_++];
  }

  // {n}, {n,}, {n,m}; a suffix on them means something else in Ruby's syntax, so none is taken.
  void interval() {
    const size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos) refuse("a brace that is no interval");
    const std::string_view body = pattern_.substr(at_ + 1, end - at_ - 1);
    const size_t comma = body.find(',');
    const std::string_view low = body.substr(0, comma);
    const std::string_view high = comma == std::string_view::npos ? "" : body.substr(comma + 1);
    if (!is_number(low) || (!high.empty() && !is_number(high)))
      refuse("a brace that is no interval");
    at_ = end + 1;
    out_.append("{").append(body).append("}");
  }

  static bool is_number(std::string_view text) {
    return !text.empty() && text.size() <= 4 &&
           std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
           std::stoi(std::string(text)) <= kMaxRepeat;
  }

  std::string_view pattern_, source_;
  size_t at_ = 0;
  bool quantifiable_ = false;
  std::string out_;
};

}  // namespace

std::string translate_pattern(std::string_view pattern, std::string_view source) {
  return Translator(pattern, source).run();
}

}  // namespace octavo::tokenizer
