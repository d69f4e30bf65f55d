#pragma once
// Cuts text into the words that BPE works on. A pre-tokenizer is a list of stages; each cuts the
// pieces of the one before. The patterns of GPT-2, Llama-3 and Qwen2 have hand-written scanners,
// recognised by their exact text; every other pattern goes through PCRE2 (regex.h).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/cutter.h"
#include "tokenizer/place.h"
#include "tokenizer/regex.h"
#include "tokenizer/unicode.h"

namespace octavo::tokenizer {

inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

enum class StageKind {
  kGpt2,         // kGpt2Pattern
  kLlama3,       // kLlama3Pattern
  kQwen2,        // kQwen2Pattern
  kRegex,        // any other pattern
  kLiteral,      // `pattern`, letter by letter
  kWordStarts,   // in front of each run of `pattern`
  kDigits,       // every number character alone
  kDigitRuns,    // runs of number characters
  kPrefixSpace,  // a space in front of each piece that has none
  kMetaspace,    // `pattern` for each space, and in front of the pieces that `prefix` says
};

enum class Prefix { kNever, kFirst, kAlways };

struct Stage {
  StageKind kind;
  std::string pattern = {};
  CutMode mode = CutMode::kIsolated;  // of kRegex and kLiteral
  Prefix prefix = Prefix::kNever;     // of kMetaspace; kFirst: what the text begins with
};

// The stage for a pattern: a scanner when one knows it.
Stage stage_of_pattern(std::string_view pattern, CutMode mode = CutMode::kIsolated);

class PreTokenizer {
 public:
  // Buffers of one call, kept between calls.
  struct Scratch {
    std::vector<uint32_t> ends, next_ends;
    std::string text, next_text;
  };

  PreTokenizer(const std::vector<Stage>& stages, std::string_view source);

  // `text`: valid UTF-8 of at most 2 GiB. Returns the text to cut (prefixes may be added, spaces
  // replaced) and leaves the end offset of each non-empty word in scratch.ends. Thread-safe with a
  // Scratch of one's own.
  std::string_view split(std::string_view text, Place place, Scratch& scratch) const;

 private:
  struct Step {
    Stage stage;
    size_t regex;  // index into regexes_
  };
  void cut(const Step& step, std::string_view text, uint32_t base,
           std::vector<uint32_t>& ends) const;
  // Writes the pieces anew: with prefixes and, where the stage asks for it, without spaces.
  void rewrite(const Stage& stage, std::string_view text, Place place, Scratch& scratch) const;

  const CharClasses& classes_ = CharClasses::shared();
  std::vector<Step> steps_;
  std::vector<Regex> regexes_;
};

}  // namespace octavo::tokenizer
