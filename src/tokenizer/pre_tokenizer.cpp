#include "tokenizer/pre_tokenizer.h"

#include "base/error.h"

namespace octavo::tokenizer {
namespace {

// One piece of text under a scanner. Every `next` returns the end of the word that starts at `p`,
// which is before end_; the rules stand in the order of the pattern's alternatives.
class Scanner {
 public:
  Scanner(const CharClasses& classes, std::string_view text)
      : classes_(classes), end_(text.data() + text.size()) {}

  const char* next_gpt2(const char* p) const {
    if (*p == '\'')
      if (const size_t length = contraction(p, false)) return p + length;
    const char* start = *p == ' ' && p + 1 < end_ ? p + 1 : p;
    const Char c = at(start);
    if (c.kind & kSpace) return blank(p);
    return run(start + c.length, c.kind);
  }

  const char* next_llama3(const char* p, int max_digits) const {
    if (*p == '\'')
      if (const size_t length = contraction(p, true)) return p + length;
    const Char c = at(p);
    const char* q = p + c.length;
    if (c.kind & kLetter) return run(q, kLetter);
    if (c.kind & kNumber) {
      for (int i = 1; i < max_digits && q < end_; ++i) {
        const Char digit = at(q);
        if (!(digit.kind & kNumber)) break;
        q += digit.length;
      }
      return q;
    }
    if (!(c.kind & kNewline) && q < end_ && (at(q).kind & kLetter)) return run(q, kLetter);
    const char* mark = *p == ' ' ? q : p;
    if (mark < end_ && (at(mark).kind & kOther)) return run(run(mark, kOther), kNewline);
    return blank_with_newlines(p);
  }

  const char* next_digit(const char* p) const {
    const Char c = at(p);
    if (c.kind & kNumber) return p + c.length;
    return run(p, static_cast<uint8_t>(~kNumber));
  }

  const char* next_digit_run(const char* p) const {
    return run(p, at(p).kind & kNumber ? uint8_t{kNumber} : static_cast<uint8_t>(~kNumber));
  }

 private:
  struct Char {
    uint8_t kind;
    uint32_t length;
  };

  Char at(const char* p) const {
    const auto byte = static_cast<unsigned char>(*p);
    if (byte < 0x80) return {classes_.ascii(byte), 1};
    const CodePoint c = decode_utf8(p);
    return {classes_.of(c.value), c.length};
  }

  const char* run(const char* p, uint8_t mask) const {
    while (p < end_) {
      const Char c = at(p);
      if (!(c.kind & mask)) break;
      p += c.length;
    }
    return p;
  }

  // 's 't 're 've 'm 'll 'd; without case, U+017F (long s) counts as s.
  size_t contraction(const char* p, bool any_case) const {
    const auto letter = [&](ptrdiff_t i) -> char {
      if (p + i >= end_) return '\0';
      return any_case && p[i] >= 'A' && p[i] <= 'Z' ? static_cast<char>(p[i] + 32) : p[i];
    };
    switch (letter(1)) {
      case 's':
      case 't':
      case 'm':
      case 'd':
        return 2;
      case 'r':
      case 'v':
        return letter(2) == 'e' ? 3 : 0;
      case 'l':
        return letter(2) == 'l' ? 3 : 0;
      case '\xC5':
        return any_case && letter(2) == '\xBF' ? 3 : 0;
      default:
        return 0;
    }
  }

  // \s+(?!\S)|\s+ : all of it at the end of the text; else the last character goes to the next
  // word, unless it is the only one.
  const char* blank(const char* p) const {
    const char* last = p;
    const char* q = p;
    while (q < end_) {
      const Char c = at(q);
      if (!(c.kind & kSpace)) break;
      last = q;
      q += c.length;
    }
    return q == end_ || last == p ? q : last;
  }

  // \s*[\r\n]+ first: up to the last newline of the run.
  const char* blank_with_newlines(const char* p) const {
    const char* after_newline = nullptr;
    for (const char* q = p; q < end_;) {
      const Char c = at(q);
      if (!(c.kind & kSpace)) break;
      q += c.length;
      if (c.kind & kNewline) after_newline = q;
    }
    return after_newline ? after_newline : blank(p);
  }

  const CharClasses& classes_;
  const char* end_;
};

template <typename Next>
void cut_with(std::string_view text, uint32_t base, std::vector<uint32_t>& ends, Next next) {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  for (const char* p = begin; p < end;) {
    p = next(p);
    ends.push_back(base + static_cast<uint32_t>(p - begin));
  }
}

void cut_at_literal(const Stage& stage, std::string_view text, uint32_t base,
                    std::vector<uint32_t>& ends) {
  const std::string& pattern = stage.pattern;
  Cutter cutter(stage.mode, base, ends);
  size_t behind = std::string_view::npos;  // the last match
  for (size_t at = text.find(pattern); at != std::string_view::npos;
       at = text.find(pattern, behind)) {
    const bool follows = at == behind;
    behind = at + pattern.size();
    if (!(follows && stage.kind == StageKind::kWordStarts)) cutter.match(at, behind);
  }
  cutter.finish(text.size());
}

bool gets_prefix(const Stage& stage, Place place, bool is_first) {
  if (is_first && place == Place::kInsideText) return false;
  if (stage.kind == StageKind::kPrefixSpace || stage.prefix == Prefix::kAlways) return true;
  return stage.prefix == Prefix::kFirst && is_first && place == Place::kStart;
}

}  // namespace

Stage stage_of_pattern(std::string_view pattern, CutMode mode) {
  if (mode == CutMode::kIsolated) {
    if (pattern == kGpt2Pattern) return {StageKind::kGpt2};
    if (pattern == kLlama3Pattern) return {StageKind::kLlama3};
    if (pattern == kQwen2Pattern) return {StageKind::kQwen2};
  }
  return {StageKind::kRegex, std::string(pattern), mode};
}

PreTokenizer::PreTokenizer(const std::vector<Stage>& stages, std::string_view source) {
  for (const Stage& stage : stages) {
    steps_.push_back({stage, regexes_.size()});
    if (stage.kind == StageKind::kRegex) regexes_.emplace_back(stage.pattern, source);
  }
}

void PreTokenizer::cut(const Step& step, std::string_view text, uint32_t base,
                       std::vector<uint32_t>& ends) const {
  const Scanner scanner(classes_, text);
  switch (step.stage.kind) {
    case StageKind::kGpt2:
      return cut_with(text, base, ends, [&](const char* p) { return scanner.next_gpt2(p); });
    case StageKind::kLlama3:
      return cut_with(text, base, ends, [&](const char* p) { return scanner.next_llama3(p, 3); });
    case StageKind::kQwen2:
      return cut_with(text, base, ends, [&](const char* p) { return scanner.next_llama3(p, 1); });
    case StageKind::kDigits:
      return cut_with(text, base, ends, [&](const char* p) { return scanner.next_digit(p); });
    case StageKind::kDigitRuns:
      return cut_with(text, base, ends, [&](const char* p) { return scanner.next_digit_run(p); });
    case StageKind::kRegex:
      return regexes_[step.regex].split(text, step.stage.mode, base, ends);
    case StageKind::kLiteral:
    case StageKind::kWordStarts:
      return cut_at_literal(step.stage, text, base, ends);
    case StageKind::kPrefixSpace:
    case StageKind::kMetaspace:
      break;
  }
  OCTAVO_ASSERT(!"this stage does not cut");
}

void PreTokenizer::rewrite(const Stage& stage, std::string_view text, Place place,
                           Scratch& scratch) const {
  const bool replaces = stage.kind == StageKind::kMetaspace;
  const std::string_view prefix = replaces ? std::string_view(stage.pattern) : " ";
  std::string& out = scratch.next_text;
  out.clear();
  scratch.next_ends.clear();
  uint32_t begin = 0;
  for (const uint32_t end : scratch.ends) {
    const std::string_view piece = text.substr(begin, end - begin);
    const bool has_prefix = piece.starts_with(prefix) || (replaces && piece.starts_with(' '));
    if (!has_prefix && gets_prefix(stage, place, begin == 0)) out += prefix;
    size_t done = 0;
    for (size_t at; replaces && (at = piece.find(' ', done)) != std::string_view::npos;
         done = at + 1)
      out.append(piece.substr(done, at - done)).append(prefix);
    out.append(piece.substr(done));
    if (out.size() > UINT32_MAX)
      fail(ExitCode::kUsage, "tokenizer", "wanted a text below 4 GiB with '", prefix,
           "' for its spaces, found a longer one; split it into documents");
    scratch.next_ends.push_back(static_cast<uint32_t>(out.size()));
    begin = end;
  }
  scratch.text.swap(scratch.next_text);
  scratch.ends.swap(scratch.next_ends);
}

std::string_view PreTokenizer::split(std::string_view text, Place place, Scratch& scratch) const {
  scratch.ends.clear();
  if (text.empty()) return text;
  scratch.ends.push_back(static_cast<uint32_t>(text.size()));
  for (const Step& step : steps_) {
    if (step.stage.kind == StageKind::kPrefixSpace || step.stage.kind == StageKind::kMetaspace) {
      rewrite(step.stage, text, place, scratch);
      text = scratch.text;
      continue;
    }
    scratch.next_ends.clear();
    uint32_t begin = 0;
    for (const uint32_t end : scratch.ends) {
      cut(step, text.substr(begin, end - begin), begin, scratch.next_ends);
      begin = end;
    }
    scratch.ends.swap(scratch.next_ends);
  }
  return text;
}

}  // namespace octavo::tokenizer
